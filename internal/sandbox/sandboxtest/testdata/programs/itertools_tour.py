import itertools as it, operator
print(list(it.accumulate([1, 2, 3, 4], operator.mul)), list(it.chain([1], (2, 3), "ab")), list(it.chain.from_iterable([[1], [2, 3]])))
print(list(it.combinations("ABCD", 2)), list(it.permutations([1, 2, 3], 2)), list(it.product("ab", repeat=2)))
print([(k, list(g)) for k, g in it.groupby("aaabbc")], list(it.islice(it.count(10, 3), 4)), list(it.zip_longest([1, 2], "abc", fillvalue="-")))
print(list(it.takewhile(lambda x: x < 3, range(9))), list(it.dropwhile(lambda x: x < 3, range(6))), list(it.starmap(pow, [(2, 3), (3, 2)])), list(it.pairwise("abcd")), list(it.compress("abcd", [1, 0, 1, 0])))
a, b = it.tee(iter(range(3))); print(list(a), list(b), list(it.filterfalse(lambda x: x % 2, range(6))))
