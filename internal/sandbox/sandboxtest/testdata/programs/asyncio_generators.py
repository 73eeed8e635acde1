import asyncio
class Res:
    async def __aenter__(s): print("open"); return s
    async def __aexit__(s, *a): print("close", a[0] and a[0].__name__)
async def count(n):
    for i in range(n): await asyncio.sleep(0); yield i
async def main():
    async with Res(): print([i async for i in count(4) if i % 2])
    try:
        async with Res(): raise KeyError("x")
    except KeyError: print("caught")
    ev = asyncio.Event()
    async def waiter(): await ev.wait(); return "woken"
    t = asyncio.create_task(waiter()); await asyncio.sleep(0); ev.set(); print(await t)
    print(await asyncio.to_thread(sum, [1, 2, 3]))
asyncio.run(main())
