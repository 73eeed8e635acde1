print("held so far", flush=True)
x = []
for i in range(200_000): x = [x]
look("repr", lambda: len(repr(x)))
look("compare", lambda: x == [x])
look("json", lambda: __import__("json").loads("[" * 200_000))
look("pickle", lambda: __import__("pickle").dumps(x))
look("parens", lambda: eval("(" * 5000 + ")" * 5000))
look("minus", lambda: eval("-" * 100_000 + "1"))
look("regex", lambda: __import__("re").compile("(" * 5000 + ")" * 5000))
look("marshal", lambda: __import__("marshal").loads(b"\xe3" + bytes(100)))
sys.setrecursionlimit(10 ** 6)
look("recursion", lambda: (lambda f: f(f))(lambda f: f(f)))
