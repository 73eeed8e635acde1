from dataclasses import dataclass
@dataclass
class Pt: x: int; y: int
def f(v):
    match v:
        case 0: return "zero"
        case int() | float() as n if n < 0: return f"negative {n}"
        case str(s): return "text " + s.upper()
        case [first, *rest]: return f"list {first} {rest}"
        case {"kind": "circle", "r": r, **other}: return f"circle {r} {other}"
        case Pt(x=0, y=y): return f"on axis {y}"
        case Pt(x, y): return f"point {x},{y}"
        case None | True: return "none or true"
        case _: return "other"
for v in (0, -3, "hi", [1, 2, 3], (4,), {"kind": "circle", "r": 2, "c": "red"}, Pt(0, 5), Pt(1, 2), None, True, 3.5, set()): print(f(v))
