m = [[r * 4 + c for c in range(4)] for r in range(3)]; out = []
while m: out += m.pop(0); m = [list(r) for r in zip(*m)][::-1]
print(out); print([list(r)[::-1] for r in zip(*[[1, 2], [3, 4]])])
