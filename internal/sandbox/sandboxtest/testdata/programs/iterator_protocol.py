class Fib:
    def __init__(s, n): s.n = n
    def __iter__(s): s.a, s.b, s.i = 0, 1, 0; return s
    def __next__(s):
        if s.i >= s.n: raise StopIteration
        s.i += 1; v = s.a; s.a, s.b = s.b, s.a + s.b; return v
print(list(Fib(10)), 13 in Fib(10), max(Fib(5)), [*zip(Fib(3), "abc")])
it = iter([1, 2]); print(next(it), next(it), next(it, "end")); print(list(iter(iter([3, 2, 0, 1]).__next__, 0)))
class Seq:
    def __getitem__(s, i):
        if i > 2: raise IndexError
        return i * 10
print(list(Seq()), list(reversed([1, 2])), sum(Seq()))
