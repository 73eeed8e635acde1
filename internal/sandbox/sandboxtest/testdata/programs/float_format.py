for x in (0.1, 1 / 3, 1e100, 123456789.123, 1e-10, 2.0, 1e15, 1e16, -0.0, float("inf")): print(x, repr(x), f"{x:.3f}" if abs(x) < 1e20 else "", f"{x:g}", "%.2e" % x, str(round(x, 2)) if abs(x) < 1e20 else "")
print(3.0 == 3, int(3.99), float("1e3"), round(1234.5, -2), 5 // 2.0, -5 % 3.0, 1.5.is_integer(), (2.5).hex(), format(1234567.891, ",.1f"), sum([0.1] * 3), 0.1 * 3)
