p = list(range(8))
def find(x):
    while p[x] != x: p[x] = p[p[x]]; x = p[x]
    return x
edges = [(4, 0, 1), (1, 1, 2), (3, 0, 2), (2, 3, 4), (9, 2, 3), (5, 5, 6)]; mst = []
for w, a, b in sorted(edges):
    if find(a) != find(b): p[find(a)] = find(b); mst.append((w, a, b))
print(mst, sum(w for w, *_ in mst), len({find(x) for x in range(8)}))
