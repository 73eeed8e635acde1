ns = {}
exec("def sq(x): return x * x\nz = sq(7)", ns); print(ns["z"], eval("z + 1", ns), eval("[i for i in range(n)]", {"n": 3}))
c = compile("a + b", "<s>", "eval"); print(eval(c, {"a": 1, "b": 2}), c.co_names)
try: eval("1 +")
except SyntaxError as e: print(e.msg, e.lineno)
