def win(b): return next((b[i] for i, j, k in ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)) if b[i] == b[j] == b[k] != " "), None)
from functools import cache
@cache
def mm(b, p):
    if w := win(b): return 1 if w == "X" else -1
    if " " not in b: return 0
    v = [mm(b[:i] + p + b[i + 1:], "O" if p == "X" else "X") for i, c in enumerate(b) if c == " "]
    return max(v) if p == "X" else min(v)
print(mm("XO  X O  ", "X"), mm("X O  O  X", "X"), mm(" " * 9, "X"))
