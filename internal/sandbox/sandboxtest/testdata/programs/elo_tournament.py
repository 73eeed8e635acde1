import itertools
r = {p: 1500.0 for p in "ABCD"}
for i, (a, b) in enumerate(itertools.combinations("ABCD", 2)):
    e = 1 / (1 + 10 ** ((r[b] - r[a]) / 400)); s = (1, 0, 0.5)[i % 3]; d = 32 * (s - e); r[a] += d; r[b] -= d
for p, v in sorted(r.items(), key=lambda t: -t[1]): print(p, round(v, 3))
