d = {"a": 1, "b": 2}; d |= {"c": 3}; d.setdefault("z", []).append(1); print(d, d.pop("a"), d.get("q", "?"), list(d.items()), "b" in d, {**d, "b": 9}, dict.fromkeys("xy", 0), {v: k for k, v in [("a", 1)]})
print(sorted(d, key=str), d.keys() & {"b", "q"}, dict(sorted({"b": 1, "a": 2}.items())), max({"x": 3, "y": 5}.items(), key=lambda kv: kv[1]), len(d), dict(zip("ab", (1, 2))), next(iter(d)), list(reversed(d)))
def deep(a, b): return {k: deep(a[k], b[k]) if isinstance(a.get(k), dict) and isinstance(b.get(k), dict) else b.get(k, a.get(k)) for k in [*a, *(k for k in b if k not in a)]}
print(deep({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"y": 3}, "c": 4}))
nested = {"a": {"b": [{"c": 5}]}}; print(nested["a"]["b"][0]["c"])
try:
    for k in d: d[k + "x"] = 1
except RuntimeError as e: print(e)
