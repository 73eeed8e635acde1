import operator as op
d = [{"n": "b", "v": 2}, {"n": "a", "v": 5}]; print(sorted(d, key=op.itemgetter("n")), op.attrgetter("real", "imag")(3 + 4j), op.methodcaller("upper")("x"), list(map(op.add, [1, 2], [3, 4])), op.contains("abc", "b"), op.itemgetter(1, 0)("ab"))
l = [1]; l2 = op.iadd(l, [2]); print(l is l2, op.truth([]), op.index(5), op.concat("a", "b"))
