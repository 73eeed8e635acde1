def caesar(s, k): return "".join(chr((ord(c) - b + k) % 26 + b) if c.isalpha() and (b := 65 if c.isupper() else 97) else c for c in s)
print(caesar("Hello, World!", 3), caesar(caesar("abc XYZ", 5), -5))
def vig(s, key): return "".join(chr((ord(c) + ord(key[i % len(key)]) - 130) % 26 + 65) for i, c in enumerate(s))
print(vig("ATTACKATDAWN", "LEMON"))
