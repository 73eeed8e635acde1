REG = {}
def plugin(name=None, *, order=0):
    def deco(f): REG[name or f.__name__] = (order, f); return f
    return deco
@plugin(order=2)
def upper(s): return s.upper()
@plugin("trim", order=1)
def _t(s): return s.strip()
s = "  hi  "
for n, (o, f) in sorted(REG.items(), key=lambda kv: kv[1][0]): s = f(s); print(n, repr(s))
