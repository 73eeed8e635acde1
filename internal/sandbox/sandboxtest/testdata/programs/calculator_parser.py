import re
def tokens(s): return re.findall(r"\d+\.?\d*|[-+*/()^]", s)
def parse(s):
    t = tokens(s); pos = 0
    def peek(): return t[pos] if pos < len(t) else None
    def take():
        nonlocal pos; pos += 1; return t[pos - 1]
    def expr():
        v = term()
        while peek() in ("+", "-"): v = v + term() if take() == "+" else v - term()
        return v
    def term():
        v = fac()
        while peek() in ("*", "/"): v = v * fac() if take() == "*" else v / fac()
        return v
    def fac():
        b = atom()
        if peek() == "^": take(); return b ** fac()
        return b
    def atom():
        x = take()
        if x == "(": v = expr(); take(); return v
        if x == "-": return -atom()
        return float(x)
    return expr()
for e in ("1+2*3", "(1+2)*3", "2^3^2", "-4+10/4", "2*(3-(1+1))"): print(e, "=", parse(e))
