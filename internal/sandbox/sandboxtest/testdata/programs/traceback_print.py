import traceback, sys
def a(): b()
def b(): raise RuntimeError("deep")
try: a()
except RuntimeError:
    t = traceback.format_exc().splitlines()
    print(t[0], t[-1])
    print([f.name for f in traceback.extract_tb(sys.exc_info()[2])][1:])
