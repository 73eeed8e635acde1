def ok(s):
    st = []
    for c in s:
        if c in "([{": st.append(c)
        elif c in ")]}" and (not st or "([{".index(st.pop()) != ")]}".index(c)): return False
    return not st
for s in ("{[()]}", "([)]", "", "((("): print(repr(s), ok(s))
def rpn(e):
    st = []
    for t in e.split(): st.append(int(t) if t.lstrip("-").isdigit() else {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: int(a / b)}[t](*[st.pop(), st.pop()][::-1]))
    return st[0]
print(rpn("3 4 + 2 * 7 /"), rpn("5 1 2 + 4 * + 3 -"))
