class AppError(Exception):
    def __init__(self, msg, code): super().__init__(msg); self.code = code
def parse(x):
    try: return int(x)
    except ValueError as e: raise AppError(f"bad {x!r}", 7) from e
try: parse("q")
except AppError as e: print(e, e.code, repr(e.__cause__), e.args)
def f():
    try: return "try"
    finally: print("finally")
print(f())
try:
    try: 1 / 0
    except ZeroDivisionError: {}["k"]
except KeyError as e: print(repr(e), type(e.__context__).__name__)
for op in (lambda: [][1], lambda: {}["a"], lambda: None.x, lambda: "a" + 1, lambda: int("x"), lambda: len(5), lambda: undefined, lambda: (1).foo()):
    try: op()
    except Exception as e: print(type(e).__name__, e)
else: print("else")
