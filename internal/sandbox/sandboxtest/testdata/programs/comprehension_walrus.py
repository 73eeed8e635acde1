data = [1, -2, 3, None, 5]
print([y for x in data if x is not None and (y := x * 2) > 0], [(i, j) for i in range(3) for j in range(i)], {w: len(w) for w in "aa b ccc".split()}, [[r[i] for r in [[1, 2], [3, 4]]] for i in range(2)])
while (n := data.pop()) is not None: print("popped", n)
print(sum(1 for _ in range(5)), *(c for c in "abc"), sep="-"); print([*range(3)], dict([("a", 1)]), (lambda *a, **k: (a, k))(1, *[2], x=3, **{"y": 4}))
