def countdown(n):
    while n: 
        got = yield n
        n = got if got is not None else n - 1
g = countdown(3); print(next(g), g.send(10), next(g), list(g)[-3:])
def tree(t):
    if t: yield from tree(t[0]); yield t[1]; yield from tree(t[2])
print(list(tree(((None, 1, None), 2, (None, 3, None)))))
def sub(): x = yield 1; return x * 2
def outer(): r = yield from sub(); yield ("result", r)
o = outer(); next(o); print(o.send(21))
def cleanup():
    try: yield 1
    finally: print("closed")
c = cleanup(); next(c); c.close()
print(sum(x * x for x in range(10)), {x % 3 for x in range(9)}, {k: v for k, v in zip("ab", [1, 2])})
