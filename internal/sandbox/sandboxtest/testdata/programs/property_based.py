import random
def rev(s): return s[::-1]
r = random.Random(0)
for _ in range(200):
    s = "".join(r.choices("abc", k=r.randint(0, 9))); assert rev(rev(s)) == s and len(rev(s)) == len(s)
    l = [r.randint(-9, 9) for _ in range(r.randint(0, 9))]; assert sorted(l) == sorted(sorted(l)) and sum(l) == sum(reversed(l))
print("held")
