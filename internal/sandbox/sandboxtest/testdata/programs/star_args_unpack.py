def f(*a, **k): return a, k
print(f(*[1, 2], *(3,), **{"x": 1}, **dict(y=2)), [*"ab", *range(2)], {**{"a": 1}, "b": 2}, (*"xy",))
a, (b, *c), d = 1, (2, 3, 4), 5; print(a, b, c, d); (x, y), z = [1, 2], 3; x, y = y, x; print(x, y, z); head, *_ = "hello"; print(head)
for i, (k, v) in enumerate({"a": 1}.items(), start=5): print(i, k, v)
