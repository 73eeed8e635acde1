import sched, time
t = [0]; s = sched.scheduler(lambda: t[0], lambda d: t.__setitem__(0, t[0] + d)); out = []
for d, n in ((5, "b"), (1, "a"), (9, "c")): s.enter(d, 1, out.append, (n,))
s.run(); print(out, t)
