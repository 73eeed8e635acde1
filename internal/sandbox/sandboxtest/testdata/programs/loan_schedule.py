from decimal import Decimal as D, ROUND_HALF_UP
p, rate, n = D(10000), D("0.06") / 12, 6
pay = (p * rate / (1 - (1 + rate) ** -n)).quantize(D("0.01"), ROUND_HALF_UP); total = D(0)
for i in range(1, n + 1):
    it = (p * rate).quantize(D("0.01"), ROUND_HALF_UP); x = min(pay, p + it) if i < n else p + it; p -= x - it; total += it; print(f"{i:>2} {x:>10} {it:>8} {p:>10}")
print("interest", total)
