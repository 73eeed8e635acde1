name, n, x, d = "Ann", 255, 1234.5678, {"k": [1, 2]}
print(f"{name!r:>8}|{n:#x}|{n:08b}|{x:,.2f}|{x:e}|{x:10.1f}|{n:+d}|{0.256:.1%}|{name:*^9}|{n=}|{d['k'][0]}|{{}}")
import datetime; print(f"{datetime.date(2024, 1, 2):%d.%m.%y} {'nested ' + f'{n:o}'} {x!s:.6} {n:_} {10**12:_} {True:d} {'a' if n else 'b'}")
w, p = 10, 3; print(f"{3.14159:{w}.{p}}|{'x':<{w}}|", "%s %5.2f %-5d| %x %%" % ("a", 1.005, 42, 255), "{0} {1[a]} {0!r} {b.real}".format("z", {"a": 1}, b=3))
from string import Template; print(Template("$a and ${b}s $$").substitute(a=1, b="cat"))
