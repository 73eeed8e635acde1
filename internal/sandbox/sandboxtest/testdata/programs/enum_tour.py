from enum import Enum, IntEnum, Flag, auto, unique
class Color(Enum):
    RED = 1; GREEN = 2; ROT = 1
    @property
    def hex(self): return {1: "f00", 2: "0f0"}[self.value]
class P(Flag): R = auto(); W = auto(); X = auto()
class L(IntEnum): LOW = 1; HIGH = 5
print(Color.RED, Color(2), Color["RED"], Color.ROT is Color.RED, [c.name for c in Color], Color.GREEN.hex)
print(P.R in (P.R | P.W), (P.R | P.X).value, L.HIGH > 3, sorted(L), L(1) == 1)
try: Color(9)
except ValueError as e: print(e)
