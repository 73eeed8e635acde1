import asyncio
async def producer(q):
    for i in range(5): await q.put(i); await asyncio.sleep(0)
    await q.put(None)
async def consumer(q, out):
    while (x := await q.get()) is not None: out.append(x * 10)
async def main():
    q, out = asyncio.Queue(maxsize=2), []
    await asyncio.gather(producer(q), consumer(q, out)); print(out)
    sem, log = asyncio.Semaphore(2), []
    async def job(i):
        async with sem: log.append(("in", i)); await asyncio.sleep(0.005); log.append(("out", i))
    await asyncio.gather(*map(job, range(4))); print(log)
asyncio.run(main())
