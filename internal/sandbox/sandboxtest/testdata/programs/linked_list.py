class LL:
    def __init__(s, *v):
        s.head = None
        for x in reversed(v): s.head = (x, s.head)
    def __iter__(s):
        n = s.head
        while n: yield n[0]; n = n[1]
    def reverse(s): return LL(*reversed(list(s)))
    def __repr__(s): return " -> ".join(map(str, s)) or "empty"
print(LL(1, 2, 3), LL(1, 2, 3).reverse(), LL())
