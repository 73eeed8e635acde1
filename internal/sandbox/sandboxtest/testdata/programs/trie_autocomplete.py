class Trie:
    def __init__(s): s.root = {}
    def add(s, w):
        n = s.root
        for c in w: n = n.setdefault(c, {})
        n["$"] = True
    def complete(s, p):
        n = s.root
        for c in p:
            if c not in n: return []
            n = n[c]
        out = []
        def walk(n, w):
            for c in sorted(n): out.append(w) if c == "$" else walk(n[c], w + c)
        walk(n, p); return out
t = Trie(); [t.add(w) for w in "car card care cat dog".split()]; print(t.complete("car"), t.complete("x"), t.complete("d"))
