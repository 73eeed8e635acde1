from concurrent.futures import ThreadPoolExecutor, as_completed
def work(x): return x * x
with ThreadPoolExecutor(max_workers=4) as ex:
    print(list(ex.map(work, range(6)))); fs = {ex.submit(pow, 2, n): n for n in range(4)}
    print(sorted((fs[f], f.result()) for f in as_completed(fs)))
    f = ex.submit(lambda: 1 / 0); print(type(f.exception()).__name__, f.done())
