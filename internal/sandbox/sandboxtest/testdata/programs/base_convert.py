def to(n, b): return "0" if n == 0 else ("" if n < b else to(n // b, b)).lstrip("0") + "0123456789abcdefghijklmnopqrstuvwxyz"[n % b]
print([to(255, b) for b in (2, 8, 16, 36)], int(to(12345, 7), 7), f"{255:b} {255:o} {255:X}", int("0x1f", 0), chr(0x1F600), ord("€"), oct(8))
