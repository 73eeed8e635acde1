class InsufficientFunds(Exception): pass
class Account:
    def __init__(self, owner, balance=0): self.owner, self._balance, self.history = owner, balance, []
    @property
    def balance(self): return self._balance
    def deposit(self, x):
        if x <= 0: raise ValueError("amount must be positive")
        self._balance += x; self.history.append(("deposit", x)); return self
    def withdraw(self, x):
        if x > self._balance: raise InsufficientFunds(f"need {x - self._balance} more")
        self._balance -= x; self.history.append(("withdraw", x)); return self
a = Account("Kim", 100).deposit(50).withdraw(30); print(a.balance, a.history)
for f in (lambda: a.withdraw(500), lambda: a.deposit(-1), lambda: setattr(a, "balance", 1)):
    try: f()
    except (InsufficientFunds, ValueError, AttributeError) as e: print(type(e).__name__, str(e)[:20])
