from dataclasses import dataclass, FrozenInstanceError, fields
@dataclass(frozen=True, slots=True)
class Money:
    amount: int
    currency: str = "EUR"
    def __post_init__(self):
        if self.amount < 0: raise ValueError("negative")
    def __add__(self, o): return Money(self.amount + o.amount, self.currency)
m = Money(3) + Money(4)
print(m, hash(m) == hash(Money(7)), [f.name for f in fields(m)])
try: m.amount = 1
except FrozenInstanceError as e: print(type(e).__name__, e)
try: Money(-1)
except ValueError as e: print(e)
