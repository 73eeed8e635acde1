try: raise ExceptionGroup("many", [ValueError(1), TypeError("t"), ExceptionGroup("in", [ValueError(2)])])
except* ValueError as g: print("values", [e.args for e in g.exceptions], len(g.exceptions))
except* TypeError as g: print("types", g.exceptions)
e = ValueError("x"); e.add_note("a note"); print(e.__notes__)
import contextlib
with contextlib.suppress(KeyError): {}["x"]
print("after")
