print(1 < 2 < 3, 1 < 3 > 2, 1 == 1.0 == True, "a" < "b" <= "b", not 0 or 1, [] or "x", 0 and 1 / 0, None or 0, 5 if [] else 6, 3 in [1, 2] == False, (1, 2) < (1, 3), [1, 2] < [1, 2, 0], {1} < {1, 2})
x = 5; print(x.__class__, x is 5.0 if False else "n", id(x) == id(x), isinstance(True, int), bool("False"), (lambda: (yield))().__class__.__name__)
