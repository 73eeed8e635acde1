from decimal import Decimal, getcontext, ROUND_HALF_UP, ROUND_HALF_EVEN, InvalidOperation, localcontext
print(Decimal("0.1") + Decimal("0.2") == Decimal("0.3"), Decimal(1) / Decimal(7))
for v in ("2.345", "2.355", "-2.345"):
    print(Decimal(v).quantize(Decimal("0.01"), ROUND_HALF_UP), Decimal(v).quantize(Decimal("0.01"), ROUND_HALF_EVEN))
with localcontext() as c:
    c.prec = 50; print(Decimal(2).sqrt())
print(sum(Decimal(x) for x in "1.10 2.20 3.30".split()), Decimal("1E+3"), Decimal("123.4500").normalize(), f"{Decimal('1234567.891'):,.2f}")
try: Decimal("abc")
except InvalidOperation as e: print("invalid")
