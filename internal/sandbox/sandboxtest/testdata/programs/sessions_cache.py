import time, hashlib
class TTL:
    def __init__(s, ttl, clock): s.ttl, s.clock, s.d = ttl, clock, {}
    def set(s, k, v): s.d[k] = (v, s.clock() + s.ttl)
    def get(s, k):
        v, t = s.d.get(k, (None, 0)); return v if t > s.clock() else None
now = [0]; c = TTL(10, lambda: now[0]); c.set("a", 1); print(c.get("a")); now[0] = 11; print(c.get("a"))
class Bloom:
    def __init__(s, n=1024): s.b, s.n = 0, n
    def h(s, x): return [int(hashlib.sha256(f"{i}{x}".encode()).hexdigest(), 16) % s.n for i in range(3)]
    def add(s, x):
        for i in s.h(x): s.b |= 1 << i
    def __contains__(s, x): return all(s.b >> i & 1 for i in s.h(x))
b = Bloom(); [b.add(w) for w in ("x", "y")]; print("x" in b, "zz" in b)
