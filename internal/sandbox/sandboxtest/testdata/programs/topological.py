from graphlib import TopologicalSorter, CycleError
g = {"d": {"b", "c"}, "b": {"a"}, "c": {"a"}}
ts = TopologicalSorter(g); ts.prepare()
while ts.is_active():
    r = sorted(ts.get_ready()); print(r); ts.done(*r)
try: list(TopologicalSorter({"a": "b", "b": "a"}).static_order())
except CycleError as e: print("cycle", sorted(set(e.args[1])))
