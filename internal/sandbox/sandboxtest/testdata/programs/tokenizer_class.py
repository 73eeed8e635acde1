import re
from typing import NamedTuple
class Tok(NamedTuple): kind: str; value: str; line: int
spec = [("NUM", r"\d+"), ("ID", r"[A-Za-z_]\w*"), ("OP", r"[=+*/-]"), ("NL", r"\n"), ("WS", r"[ \t]+"), ("BAD", r".")]
rx = re.compile("|".join(f"(?P<{n}>{p})" for n, p in spec)); line = 1
for m in rx.finditer("x = 3\ny = x*2 ?"):
    k = m.lastgroup
    if k == "NL": line += 1
    elif k != "WS": print(Tok(k, m.group(), line))
