import math
n = math.factorial(100); print(n, len(str(2 ** 1000)), sum(map(int, str(2 ** 1000))), pow(2, 10 ** 6, 10 ** 9 + 7), hex(2 ** 100), (3 ** 200) % (2 ** 61 - 1), -(5 ** 40) // 7 ** 20, math.isqrt(10 ** 61))
a, b = 0, 1
for _ in range(300): a, b = b, a + b
print(a, int(str(a)[::-1]), a.bit_length(), (a << 5) >> 3 & 0xFFFF, ~a % 97, a ^ b)
