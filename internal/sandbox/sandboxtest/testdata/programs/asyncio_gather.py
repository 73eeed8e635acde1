import asyncio
async def work(n):
    await asyncio.sleep(0.01 * (3 - n)); return n * n
async def main():
    print(await asyncio.gather(*(work(i) for i in range(3))))
    done = []
    for f in asyncio.as_completed([work(i) for i in range(3)]): done.append(await f)
    print(done)
    try: await asyncio.wait_for(asyncio.sleep(5), 0.01)
    except asyncio.TimeoutError: print("timeout")
asyncio.run(main())
