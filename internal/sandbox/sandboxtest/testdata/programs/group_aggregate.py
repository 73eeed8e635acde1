from itertools import groupby; from operator import itemgetter; from statistics import mean
sales = [dict(r=r, m=m, v=v) for r, m, v in [("N", 1, 10), ("S", 1, 20), ("N", 2, 30), ("S", 2, 5), ("N", 3, 7)]]
for k, g in groupby(sorted(sales, key=itemgetter("r")), key=itemgetter("r")):
    v = [x["v"] for x in g]; print(k, sum(v), mean(v), max(v))
pivot = {m: {r: sum(s["v"] for s in sales if s["m"] == m and s["r"] == r) for r in "NS"} for m in (1, 2, 3)}; print(pivot)
run = 0; print([run := run + s["v"] for s in sales])
