b = [int(c) for c in "530070000600195000098000060800060003400803001700020006060000280000419005000080079"]
def ok(b, i, v):
    r, c = divmod(i, 9)
    return all(b[r * 9 + k] != v and b[k * 9 + c] != v and b[(r // 3 * 3 + k // 3) * 9 + c // 3 * 3 + k % 3] != v for k in range(9))
def solve(b):
    try: i = b.index(0)
    except ValueError: return True
    for v in range(1, 10):
        if ok(b, i, v):
            b[i] = v
            if solve(b): return True
    b[i] = 0; return False
print(solve(b)); print("".join(map(str, b)))
