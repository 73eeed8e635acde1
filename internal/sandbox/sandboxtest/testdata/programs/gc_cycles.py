import gc
class N: alive = 0
def make():
    a, b = N(), N(); a.o, b.o = b, a
for _ in range(100): make()
gc.collect(); print(sum(isinstance(o, N) for o in gc.get_objects()), gc.isenabled(), len(gc.get_threshold()))
