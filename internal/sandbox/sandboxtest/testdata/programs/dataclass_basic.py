from dataclasses import dataclass, field, asdict, astuple, replace
@dataclass(order=True)
class Point:
    x: float
    y: float = 0.0
    tags: list[str] = field(default_factory=list, compare=False)
    def dist(self): return (self.x ** 2 + self.y ** 2) ** 0.5
p = Point(3, 4, ["a"])
print(p, p.dist(), asdict(p), astuple(p))
print(replace(p, x=0), Point(1) < Point(2), sorted([Point(2, 1), Point(1, 9), Point(1, 2)]))
