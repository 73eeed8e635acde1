class Vec:
    def __init__(s, *c): s.c = c
    def __add__(s, o): return Vec(*(a + b for a, b in zip(s.c, o.c)))
    def __mul__(s, k): return Vec(*(a * k for a in s.c)) if isinstance(k, (int, float)) else sum(a * b for a, b in zip(s.c, k.c))
    __rmul__ = __mul__
    def __eq__(s, o): return s.c == o.c
    def __hash__(s): return hash(s.c)
    def __len__(s): return len(s.c)
    def __getitem__(s, i): return s.c[i]
    def __iter__(s): return iter(s.c)
    def __bool__(s): return any(s.c)
    def __contains__(s, x): return x in s.c
    def __call__(s, x): return x
    def __format__(s, spec): return "(" + ", ".join(format(a, spec) for a in s.c) + ")"
    def __neg__(s): return -1 * s
    def __matmul__(s, o): return s * o
v, w = Vec(1, 2), Vec(3, 4)
print((v + w).c, (2 * v).c, v * w, v == Vec(1, 2), len({v, Vec(1, 2)}), v[1], [*w], bool(Vec(0, 0)), 3 in w, v("x"), f"{v:.2f}", (-v).c, v @ w, v[0:1])
