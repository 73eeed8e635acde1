items = [("apple", 3, 0.5, "fruit"), ("pear", 1, 0.75, "fruit"), ("nail", 100, 0.02, "tool"), ("saw", 2, 12.5, "tool")]
by = {}
for n, q, p, c in items: by.setdefault(c, []).append((n, q * p))
print(f"{'item':<10}{'qty':>5}{'price':>10}{'total':>10}"); print("-" * 35)
for n, q, p, c in sorted(items, key=lambda r: -r[1] * r[2]): print(f"{n:<10}{q:>5}{p:>10.2f}{q * p:>10.2f}")
for c, l in by.items(): print(c, f"{sum(v for _, v in l):.2f}", max(l, key=lambda t: t[1])[0])
