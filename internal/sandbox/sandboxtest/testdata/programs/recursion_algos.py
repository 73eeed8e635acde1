def hanoi(n, a="A", b="B", c="C"): return [] if n == 0 else hanoi(n - 1, a, c, b) + [(a, c)] + hanoi(n - 1, b, a, c)
print(len(hanoi(8)), hanoi(2))
def perms(s): return [s] if len(s) < 2 else [s[i] + p for i in range(len(s)) for p in perms(s[:i] + s[i + 1:])]
print(perms("abc"))
def flat(x): return [y for i in x for y in (flat(i) if isinstance(i, list) else [i])]
print(flat([1, [2, [3, [4]], 5]]))
def queens(n, row=0, cols=()):
    if row == n: return 1
    return sum(queens(n, row + 1, cols + (c,)) for c in range(n) if all(c != x and abs(c - x) != row - r for r, x in enumerate(cols)))
print(queens(6))
def ack(m, n): return n + 1 if m == 0 else ack(m - 1, 1) if n == 0 else ack(m - 1, ack(m, n - 1))
print(ack(2, 3))
