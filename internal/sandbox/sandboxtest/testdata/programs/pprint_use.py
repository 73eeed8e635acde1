import pprint
d = {"name": "x" * 30, "list": list(range(25)), "nested": {"a": {"b": {"c": [1, 2, {"d": None}]}}}, "t": ("y" * 40, "z" * 40)}
pprint.pprint(d); pprint.pprint(d, depth=2, width=60, sort_dicts=False); print(pprint.pformat([1, [2, [3]]], depth=1))
import reprlib; print(reprlib.repr(list(range(100))))
