import random
r = random.Random(1); pts = [(r.gauss(c, 1), r.gauss(c, 1)) for c in (0, 10) for _ in range(30)]; cs = [pts[0], pts[-1]]
for _ in range(10):
    g = [[], []]
    for p in pts: g[min((0, 1), key=lambda i: (p[0] - cs[i][0]) ** 2 + (p[1] - cs[i][1]) ** 2)].append(p)
    cs = [tuple(sum(v) / len(k) for v in zip(*k)) for k in g]
print([tuple(round(v, 4) for v in c) for c in cs], [len(k) for k in g])
