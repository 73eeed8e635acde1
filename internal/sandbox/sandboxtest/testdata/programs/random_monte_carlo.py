import random
r = random.Random(2024); n = 20000
print(4 * sum(r.random() ** 2 + r.random() ** 2 < 1 for _ in range(n)) / n)
walk = [0]
for _ in range(1000): walk.append(walk[-1] + r.choice((-1, 1)))
print(max(walk), min(walk), walk[-1], r.betavariate(2, 3), r.expovariate(1.5), r.triangular(0, 1, 0.3))
