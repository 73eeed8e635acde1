def sieve(n):
    s = bytearray([1]) * (n + 1); s[:2] = b"\0\0"
    for i in range(2, int(n ** 0.5) + 1):
        if s[i]: s[i * i::i] = bytes(len(s[i * i::i]))
    return [i for i, v in enumerate(s) if v]
p = sieve(10000); print(len(p), p[-5:], sum(p))
