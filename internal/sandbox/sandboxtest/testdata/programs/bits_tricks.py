print([bin(i).count("1") for i in range(8)], 6 & -6, 5 ^ 3, ~5, 1 << 10, 0xFF >> 4, [i for i in range(8) if 0b10110010 >> i & 1], (lambda x: x & (x - 1) == 0)(64))
gray = [i ^ i >> 1 for i in range(8)]; print([f"{g:03b}" for g in gray]); print([[x for j, x in enumerate("abc") if i >> j & 1] for i in range(8)])
