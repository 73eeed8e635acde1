row = [1]
for i in range(6): print(" ".join(map(str, row)).center(20).rstrip()); row = [a + b for a, b in zip([0] + row, row + [0])]
print(*("Fizz" * (i % 3 == 0) + "Buzz" * (i % 5 == 0) or i for i in range(1, 16)))
