import asyncio
async def boom(): await asyncio.sleep(0); raise ValueError("boom")
async def fine(): await asyncio.sleep(0.01); return 1
async def main():
    try:
        async with asyncio.TaskGroup() as g: g.create_task(boom()); t = g.create_task(fine())
    except* ValueError as e: print("group", [str(x) for x in e.exceptions])
    print(t.cancelled())
    t = asyncio.create_task(fine()); t.cancel()
    try: await t
    except asyncio.CancelledError: print("cancelled")
    r = await asyncio.gather(boom(), fine(), return_exceptions=True); print(r)
    async with asyncio.timeout(1): print(await fine())
asyncio.run(main())
