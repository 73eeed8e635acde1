class Event:
    def __init__(s): s.h = []
    def __iadd__(s, f): s.h.append(f); return s
    def __isub__(s, f): s.h.remove(f); return s
    def __call__(s, *a): return [f(*a) for f in s.h]
e = Event(); log = []
def one(x): log.append(("one", x)); return x
e += one; e += lambda x: x * 2; print(e(5)); e -= one; print(e(1), log)
