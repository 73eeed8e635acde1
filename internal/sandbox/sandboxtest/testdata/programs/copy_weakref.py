import weakref, copy, gc
class N:
    def __init__(s, n): s.n = n
    def __repr__(s): return f"N{s.n}"
    def __del__(s): print("del", s.n)
a = N(1); r = weakref.ref(a); f = weakref.finalize(a, print, "finalized"); d = weakref.WeakValueDictionary(x=a); print(r(), len(d))
del a; gc.collect(); print(r(), len(d), f.alive)
b = N(2); b.me = b; del b; print("before"); gc.collect(); print("after")
