from itertools import groupby
def enc(s): return "".join(f"{len(list(g))}{k}" for k, g in groupby(s))
import re; dec = lambda s: "".join(int(n) * c for n, c in re.findall(r"(\d+)(\D)", s))
s = "WWWWWBBAAAAAZ"; print(enc(s), dec(enc(s)) == s)
