def quick(a): return a if len(a) < 2 else quick([x for x in a[1:] if x < a[0]]) + [a[0]] + quick([x for x in a[1:] if x >= a[0]])
def merge(a):
    if len(a) < 2: return a
    m = len(a) // 2; l, r, out = merge(a[:m]), merge(a[m:]), []
    while l and r: out.append((l if l[0] <= r[0] else r).pop(0))
    return out + l + r
d = [(i * 7919) % 101 for i in range(60)]
print(quick(d) == merge(d) == sorted(d), quick(d)[:8])
