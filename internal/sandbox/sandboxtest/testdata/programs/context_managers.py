from contextlib import contextmanager, ExitStack, closing, redirect_stdout, nullcontext
import io
class T:
    def __init__(s, n): s.n = n
    def __enter__(s): print("enter", s.n); return s
    def __exit__(s, t, v, tb): print("exit", s.n, t and t.__name__); return s.n == "swallow"
with T("a") as a, T("b"): print("in")
with T("swallow"): raise ValueError
@contextmanager
def tag(n):
    print(f"<{n}>")
    try: yield n
    finally: print(f"</{n}>")
with tag("p") as n: print(n)
with ExitStack() as s:
    for i in range(3): s.enter_context(T(i))
    s.callback(print, "callback")
f = io.StringIO()
with redirect_stdout(f): print("hidden")
print(repr(f.getvalue()))
