import math
print(2 ** 200, -7 // 2, -7 % 3, divmod(-7, 2), 7 / 2, round(2.5), round(3.5), round(-1.25, 1), 0.1 + 0.2, 1e16 + 1, int("ff", 16), bin(10), 10 .bit_length(), (255).bit_count())
print(math.gcd(84, 36), math.lcm(4, 6), math.comb(50, 5), math.isqrt(10 ** 20), math.factorial(25), math.perm(5, 2), math.prod([2, 3, 4]), math.hypot(3, 4), math.isclose(0.1 + 0.2, 0.3), math.fsum([0.1] * 10))
print(float("inf") > 1e308, float("nan") == float("nan"), math.floor(-1.5), math.ceil(-1.5), math.trunc(-1.5), (0.1).hex(), (0.5).as_integer_ratio(), 1_000_000, 0b101, 1e-7, 123456789.0, 1e22, 5e-324, pow(3, 100, 7), pow(3, -1, 7), complex(1, 2) * 2j, abs(3 + 4j))
print(math.sin(1), math.exp(1), math.log(10), math.log2(1024), math.sqrt(2), math.atan2(1, -1), math.degrees(math.pi), math.erf(0.5), math.gamma(5.5))
