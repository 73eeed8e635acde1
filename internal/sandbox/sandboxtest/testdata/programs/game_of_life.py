cells = {(1, 0), (2, 1), (0, 2), (1, 2), (2, 2)}
def step(c):
    from collections import Counter
    n = Counter((x + i, y + j) for x, y in c for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
    return {p for p, k in n.items() if k == 3 or k == 2 and p in c}
for _ in range(4): cells = step(cells)
for y in range(5): print("".join("#" if (x, y) in cells else "." for x in range(5)))
