A = [[1, 2], [3, 4]]; B = [[0, 1], [1, 0]]
mul = lambda X, Y: [[sum(a * b for a, b in zip(r, c)) for c in zip(*Y)] for r in X]
def power(M, n): return M if n == 1 else mul(power(M, n // 2), power(M, n - n // 2))
def det(M): return M[0][0] if len(M) == 1 else sum((-1) ** j * M[0][j] * det([r[:j] + r[j + 1:] for r in M[1:]]) for j in range(len(M)))
print(mul(A, B), power([[1, 1], [1, 0]], 30), det([[2, 0, 1], [1, 3, 2], [1, 1, 4]]), list(map(list, zip(*A))))
