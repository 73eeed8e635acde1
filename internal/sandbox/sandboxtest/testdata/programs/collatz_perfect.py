from functools import cache
@cache
def steps(n): return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)
print(max(range(1, 3000), key=steps), steps(27), [n for n in range(2, 9000) if sum(d + (n // d if d * d != n and d > 1 else 0) for d in range(1, int(n ** 0.5) + 1) if n % d == 0) == n])
