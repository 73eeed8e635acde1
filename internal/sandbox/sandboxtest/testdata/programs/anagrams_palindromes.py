from collections import defaultdict
g = defaultdict(list)
for w in "listen silent enlist google elgoog abc cab".split(): g["".join(sorted(w))].append(w)
print([v for v in g.values() if len(v) > 1]); pal = lambda s: (t := [c.lower() for c in s if c.isalnum()]) == t[::-1]; print(pal("A man, a plan, a canal: Panama"), pal("nope"))
s = "forgeeksskeegfor"; print(max((s[i:j] for i in range(len(s)) for j in range(i, len(s) + 1) if s[i:j] == s[i:j][::-1]), key=len))
