iv = [(1, 3), (8, 10), (2, 6), (15, 18), (17, 20)]; out = []
for a, b in sorted(iv):
    if out and a <= out[-1][1]: out[-1] = (out[-1][0], max(b, out[-1][1]))
    else: out.append((a, b))
print(out, sum(b - a for a, b in out))
nums = [2, 7, 11, 15]; seen = {}
for i, n in enumerate(nums):
    if 9 - n in seen: print(seen[9 - n], i)
    seen[n] = i
best = cur = -10 ** 9
for x in [-2, 1, -3, 4, -1, 2, 1, -5, 4]: cur = max(x, cur + x); best = max(best, cur)
print(best)
