class Node:
    __slots__ = "k", "l", "r"
    def __init__(s, k): s.k, s.l, s.r = k, None, None
class Tree:
    def __init__(s, it=()):
        s.root = None
        for k in it: s.add(k)
    def add(s, k):
        if s.root is None: s.root = Node(k); return
        n = s.root
        while True:
            side = "l" if k < n.k else "r"; c = getattr(n, side)
            if c is None: setattr(n, side, Node(k)); return
            n = c
    def __iter__(s):
        def walk(n):
            if n: yield from walk(n.l); yield n.k; yield from walk(n.r)
        return walk(s.root)
    def height(s): return (h := lambda n: 0 if n is None else 1 + max(h(n.l), h(n.r)))(s.root)
t = Tree([50, 30, 70, 20, 40, 60, 80, 10]); print(list(t), t.height())
