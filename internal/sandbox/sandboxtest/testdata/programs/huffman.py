import heapq; from collections import Counter
def codes(s):
    h = [(n, i, c) for i, (c, n) in enumerate(sorted(Counter(s).items()))]; heapq.heapify(h); k = len(h)
    while len(h) > 1: a, b = heapq.heappop(h), heapq.heappop(h); heapq.heappush(h, (a[0] + b[0], k, (a[2], b[2]))); k += 1
    out = {}
    def walk(n, p): out.__setitem__(n, p) if isinstance(n, str) else (walk(n[0], p + "0"), walk(n[1], p + "1"))
    walk(h[0][2], ""); return out
c = codes("abracadabra"); e = "".join(c[x] for x in "abracadabra"); print(sorted(c.items()), len(e))
