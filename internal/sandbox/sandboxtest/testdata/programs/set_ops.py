a, b = {1, 2, 3}, {3, 4}; print(sorted(a | b), a & b, sorted(a - b), sorted(a ^ b), a <= {1, 2, 3, 4}, a.isdisjoint({9}), frozenset([1]) in {frozenset([1])}, len({1, 1.0, True}))
a.add(7); a.discard(99); a.update([8]); print(sorted(a), sorted({*"hello"}), {x for x in range(3)} == {0, 1, 2})
seen = set(); print([x for x in [3, 1, 3, 2, 1] if not (x in seen or seen.add(x))])
