import functools
def retry(times):
    def deco(f):
        @functools.wraps(f)
        def inner(*a, **k):
            for i in range(times):
                try: return f(*a, **k)
                except ValueError as e: print("try", i + 1, "failed:", e)
            raise RuntimeError(f"{f.__name__} gave up")
        return inner
    return deco
n = 0
@retry(3)
def flaky():
    "Doc of flaky."
    global n; n += 1
    if n < 3: raise ValueError(n)
    return "done"
print(flaky(), flaky.__name__, flaky.__doc__)
class C:
    @functools.cached_property
    def x(self): print("computed"); return 42
c = C(); print(c.x, c.x)
