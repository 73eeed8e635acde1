import importlib, sys, types
m = importlib.import_module("json.decoder"); print(m.__name__, importlib.util.find_spec("math").name if hasattr(importlib, "util") else "math", importlib.import_module("os").path.__name__)
open("mymod.py", "w").write("X = 41\ndef inc(): return X + 1\n"); sys.path.insert(0, "."); import mymod; print(mymod.inc())
v = types.ModuleType("virt"); exec("y = 2", v.__dict__); sys.modules["virt"] = v; import virt; print(virt.y)
try: import does_not_exist
except ImportError as e: print(e.name, type(e).__name__)
