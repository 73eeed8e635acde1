import inspect
def f(a, /, b: int = 2, *args, c, d="x", **kw) -> str: "Doc."; return a
s = inspect.signature(f); print(s, [(p.name, p.kind.name) for p in s.parameters.values()], inspect.getdoc(f))
b = s.bind(1, c=3); b.apply_defaults(); print(b.arguments)
class A:
    x = 1
    def m(self): pass
print([n for n, _ in inspect.getmembers(A, inspect.isfunction)], hasattr(A, "x"), getattr(A, "q", None), vars(A())); setattr(A, "y", 2); print(A.y, callable(f), f.__defaults__, f.__annotations__)
