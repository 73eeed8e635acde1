import heapq, random
r = random.Random(5); q, t, served, wait = [], 0, 0, 0.0; free = 0.0
for i in range(50): t += r.expovariate(1); heapq.heappush(q, (t, i))
while q: a, i = heapq.heappop(q); s = max(a, free); wait += s - a; free = s + r.uniform(0.3, 1.2); served += 1
print(served, round(wait / served, 6), round(free, 6))
