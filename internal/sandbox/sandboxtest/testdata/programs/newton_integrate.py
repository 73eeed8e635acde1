def newton(f, df, x, n=20):
    for _ in range(n): x -= f(x) / df(x)
    return x
print(newton(lambda x: x * x - 2, lambda x: 2 * x, 1.0), newton(lambda x: x ** 3 - x - 2, lambda x: 3 * x * x - 1, 1.5))
def simpson(f, a, b, n=100):
    h = (b - a) / n; return h / 3 * sum((1 if i in (0, n) else 4 if i % 2 else 2) * f(a + i * h) for i in range(n + 1))
import math; print(round(simpson(math.sin, 0, math.pi), 10), round(simpson(lambda x: x ** 2, 0, 3), 10))
