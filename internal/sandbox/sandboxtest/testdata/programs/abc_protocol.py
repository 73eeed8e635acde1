from abc import ABC, abstractmethod
from collections.abc import Mapping, Iterable, Sequence
class Shape(ABC):
    @abstractmethod
    def area(self): ...
    def __str__(self): return f"{type(self).__name__} {self.area():.2f}"
class Sq(Shape):
    def __init__(s, a): s.a = a
    def area(s): return s.a ** 2
print(Sq(3))
try: Shape()
except TypeError as e: print("TypeError")
class M(Mapping):
    def __getitem__(s, k): return {"a": 1}[k]
    def __iter__(s): return iter("a")
    def __len__(s): return 1
m = M(); print(dict(m), "a" in m, m.get("z", 9), list(m.items()), isinstance([], Iterable), issubclass(dict, Sequence))
