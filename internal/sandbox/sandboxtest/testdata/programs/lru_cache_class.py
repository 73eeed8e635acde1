from collections import OrderedDict
class LRU:
    def __init__(s, n): s.n, s.d = n, OrderedDict()
    def get(s, k):
        if k not in s.d: return -1
        s.d.move_to_end(k); return s.d[k]
    def put(s, k, v):
        s.d[k] = v; s.d.move_to_end(k)
        if len(s.d) > s.n: s.d.popitem(last=False)
c = LRU(2); c.put(1, 1); c.put(2, 2); print(c.get(1)); c.put(3, 3); print(c.get(2), c.get(3), list(c.d))
