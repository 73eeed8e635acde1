try: assert 1 > 2, "math still works"
except AssertionError as e: print("AssertionError", e)
print(__debug__, __name__); import warnings
with warnings.catch_warnings(record=True) as w: warnings.simplefilter("always"); warnings.warn("old", DeprecationWarning); print(len(w), w[0].category.__name__, w[0].message)
import sys; print(sys.version_info >= (3, 11), sys.byteorder, sys.getsizeof([]) > 0, "sys" in sys.modules, sys.getrecursionlimit())
