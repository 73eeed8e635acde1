import heapq, itertools
class PQ:
    def __init__(s): s.h, s.e, s.c = [], {}, itertools.count()
    def add(s, t, p=0):
        if t in s.e: s.e[t][-1] = None
        e = [p, next(s.c), t]; s.e[t] = e; heapq.heappush(s.h, e)
    def pop(s):
        while s.h:
            p, _, t = heapq.heappop(s.h)
            if t is not None: del s.e[t]; return t
        raise KeyError("empty")
q = PQ(); q.add("write", 5); q.add("test", 3); q.add("ship", 9); q.add("write", 1); print([q.pop() for _ in range(3)])
try: q.pop()
except KeyError as e: print(e)
