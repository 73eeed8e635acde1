from fractions import Fraction
print(Fraction(1, 3) + Fraction(1, 6), Fraction("0.125"), Fraction(3.14159).limit_denominator(100), float(Fraction(1, 3)))
print(sum(Fraction(1, n) for n in range(1, 20)), Fraction(7, 3) // 1, Fraction(7, 3) % 1, Fraction(-1, 2) ** 3)
