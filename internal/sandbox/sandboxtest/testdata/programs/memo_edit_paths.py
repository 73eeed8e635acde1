from functools import lru_cache
@lru_cache(None)
def paths(r, c): return 1 if r == 0 or c == 0 else paths(r - 1, c) + paths(r, c - 1)
print(paths(16, 16)); coins = [1, 2, 5, 10, 20, 50, 100, 200]; w = [1] + [0] * 200
for c in coins:
    for i in range(c, 201): w[i] += w[i - c]
print(w[200]); s1, s2 = "AGGTAB", "GXTXAYB"; L = lru_cache(None)(lambda i, j: 0 if i < 0 or j < 0 else L(i - 1, j - 1) + 1 if s1[i] == s2[j] else max(L(i - 1, j), L(i, j - 1))); print(L(5, 6))
