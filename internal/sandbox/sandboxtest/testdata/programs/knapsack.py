items = [("map", 9, 150), ("compass", 13, 35), ("water", 153, 200), ("glucose", 15, 60)]
best = [(0, [])] * 201
for n, w, v in items:
    best = [max(best[c], (best[c - w][0] + v, best[c - w][1] + [n]) if c >= w else (0, []), key=lambda t: t[0]) for c in range(201)]
print(best[200])
