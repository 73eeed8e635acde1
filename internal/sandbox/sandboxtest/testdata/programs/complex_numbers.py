import cmath
z = 3 + 4j; print(abs(z), z.conjugate(), z * 1j, z / (1 - 2j), z ** 2, cmath.phase(1j), cmath.sqrt(-4), complex("1+2j"), z == complex(3, 4), z.real)
a, b, c = 1, 2, 5; d = cmath.sqrt(b * b - 4 * a * c); print((-b + d) / 2, (-b - d) / 2); print(cmath.polar(1 + 1j), cmath.rect(1, 0), f"{z:.1f}")
