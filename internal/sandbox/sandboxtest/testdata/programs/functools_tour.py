import functools
@functools.lru_cache(maxsize=None)
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
print(fib(80), fib.cache_info())
print(functools.reduce(lambda a, b: a * b, range(1, 11)), functools.partial(int, base=2)("1011"))
@functools.singledispatch
def show(x): return "thing"
@show.register
def _(x: int): return "int"
@show.register(list)
def _(x): return "list of " + ",".join(show(i) for i in x)
print(show("a"), show([1, 2.0, 3]))
@functools.total_ordering
class V:
    def __init__(s, n): s.n = n
    def __eq__(s, o): return s.n == o.n
    def __lt__(s, o): return s.n < o.n
print(V(1) >= V(0), sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)))
