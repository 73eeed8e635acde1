class S:
    __slots__ = ("a", "b")
    def __init__(s): s.a = 1
s = S()
for f in (lambda: s.b, lambda: setattr(s, "c", 1), lambda: s.__dict__):
    try: f()
    except AttributeError as e: print(type(e).__name__, str(e)[:25])
class D(S): pass
d = D(); d.c = 3; print(d.__dict__, d.a, D.__mro__[1].__slots__)
