def counter():
    n = 0
    def inc(by=1):
        nonlocal n; n += by; return n
    return inc
c, d = counter(), counter(); print(c(), c(5), d())
fs = [lambda i=i: i * i for i in range(4)]; print([f() for f in fs], [f() for f in [lambda: i for i in range(3)]])
x = "global"
def f():
    def g(): global x; x = "changed"
    g(); return x
print(f(), x)
def default(a, b=[], *, key=None, **kw): b.append(a); return b, key, kw
print(default(1), default(2, key=3, z=4)); import inspect; print(inspect.signature(default))
compose = lambda *f: lambda x: [x := g(x) for g in f][-1]; print(compose(lambda v: v + 1, lambda v: v * 10)(4))
