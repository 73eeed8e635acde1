import timeit
print(timeit.timeit("sum(range(100))", number=100) > 0, len(timeit.repeat("pass", repeat=2, number=10)), timeit.default_timer() > 0)
