import pickle, copy
class P:
    def __init__(s, x): s.x = x; s.cache = "temp"
    def __getstate__(s): return {"x": s.x}
    def __setstate__(s, d): s.__dict__.update(d); s.cache = "new"
    def __eq__(s, o): return s.x == o.x
p = pickle.loads(pickle.dumps([P(1), {"a": (1, 2)}, {3, 4}])); print(p[0].x, p[0].cache, p[1:], P(1) == p[0])
a = [[1], [2]]; b, c = copy.copy(a), copy.deepcopy(a); a[0].append(9); print(b, c)
try: pickle.dumps(lambda: 0)
except Exception as e: print(type(e).__name__)
