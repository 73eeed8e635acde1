print("held", "so far", flush=True)
def f(): pass
code = f.__code__
try:
    bad = code.replace(co_code=bytes([100, 255] * 50 + [83, 0]), co_consts=(), co_stacksize=1)
    exec(bad)
except BaseException as e:
    print("held", type(e).__name__)
