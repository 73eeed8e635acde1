xs, ys = [1, 2, 3, 4, 5], [2.2, 4.1, 6.2, 7.9, 10.1]
n, mx, my = len(xs), sum(xs) / 5, sum(ys) / 5
b = sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs); a = my - b * mx
r2 = 1 - sum((y - a - b * x) ** 2 for x, y in zip(xs, ys)) / sum((y - my) ** 2 for y in ys); print(f"{a:.4f} {b:.4f} {r2:.6f}")
