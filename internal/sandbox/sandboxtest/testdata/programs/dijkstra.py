import heapq
g = {"A": {"B": 7, "C": 3}, "B": {"D": 2}, "C": {"B": 1, "D": 8}, "D": {}}
def shortest(g, s):
    dist, prev, q = {s: 0}, {}, [(0, s)]
    while q:
        d, u = heapq.heappop(q)
        if d > dist[u]: continue
        for v, w in g[u].items():
            if d + w < dist.get(v, 1e9): dist[v] = d + w; prev[v] = u; heapq.heappush(q, (d + w, v))
    return dist, prev
print(*shortest(g, "A"))
