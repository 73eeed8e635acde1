def check(v, s, path="$"):
    t = {"string": str, "integer": int, "object": dict, "array": list, "boolean": bool}[s["type"]]
    if not isinstance(v, t) or t is int and isinstance(v, bool): yield f"{path}: want {s['type']}, got {type(v).__name__}"; return
    if t is dict:
        for k in s.get("required", []):
            if k not in v: yield f"{path}: missing {k}"
        for k, sub in s.get("properties", {}).items():
            if k in v: yield from check(v[k], sub, f"{path}.{k}")
    if t is list:
        for i, x in enumerate(v): yield from check(x, s["items"], f"{path}[{i}]")
S = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}}
print(*check({"tags": ["a", 1], "id": True}, S), *check({}, S), list(check({"id": 1}, S)), sep="\n")
