w, b = 0.0, 0.0; data = [(x, 3 * x + 1) for x in range(-5, 6)]
for _ in range(500):
    dw = sum(2 * (w * x + b - y) * x for x, y in data) / len(data); db = sum(2 * (w * x + b - y) for x, y in data) / len(data); w -= 0.02 * dw; b -= 0.02 * db
print(round(w, 5), round(b, 5))
