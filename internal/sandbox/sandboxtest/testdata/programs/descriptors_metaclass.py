class Positive:
    def __set_name__(self, owner, name): self.n = "_" + name
    def __get__(self, o, t): return self if o is None else getattr(o, self.n)
    def __set__(self, o, v):
        if v <= 0: raise ValueError(f"{self.n[1:]} must be positive")
        setattr(o, self.n, v)
class Reg(type):
    all = {}
    def __new__(m, name, bases, ns, **k): c = super().__new__(m, name, bases, ns, **k); m.all[name] = c; return c
class Item(metaclass=Reg):
    price = Positive()
    def __init__(s, p): s.price = p
    def __init_subclass__(cls, **k): super().__init_subclass__(); cls.tag = k
class Sub(Item, kind="s"): pass
print(Item(3).price, sorted(Reg.all), Sub.tag)
try: Item(-1)
except ValueError as e: print(e)
class Dyn:
    def __getattr__(s, n): return f"dyn_{n}"
print(Dyn().anything, type("New", (Dyn,), {"x": 1})().x)
