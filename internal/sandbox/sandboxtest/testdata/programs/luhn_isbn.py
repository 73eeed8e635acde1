def luhn(s): d = [int(c) for c in s][::-1]; return (sum(d[::2]) + sum(sum(divmod(2 * x, 10)) for x in d[1::2])) % 10 == 0
print(luhn("4539578763621486"), luhn("4539578763621487"))
isbn = lambda s: sum(int(c) * (1 + 2 * (i % 2)) for i, c in enumerate(s)) % 10 == 0
print(isbn("9780306406157"), isbn("9780306406158"))
