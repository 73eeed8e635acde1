def read(lines): yield from (l.strip() for l in lines)
def skip(it): return (l for l in it if l and not l.startswith("#"))
def pairs(it):
    for l in it: k, _, v = l.partition("="); yield k.strip(), int(v)
print(dict(pairs(skip(read(["# c", "a = 1", "", " b=22 "])))))
def chunks(it, n):
    import itertools; it = iter(it)
    while b := list(itertools.islice(it, n)): yield b
print(list(chunks(range(7), 3))); from itertools import islice; nat = (i for i in iter(int, 1)); print(list(islice(nat, 2)))
