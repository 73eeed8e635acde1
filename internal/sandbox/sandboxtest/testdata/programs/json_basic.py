import json
data = {"b": [1, 2.5, None, True], "a": {"ü": "\u20ac", "q": "\"\\\n"}, "big": 12345678901234567890}
print(json.dumps(data)); print(json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False))
assert json.loads(json.dumps(data)) == data
for bad in ["[1 2]", "{'a': 1}", '"abc', "nul", ""]:
    try: json.loads(bad)
    except json.JSONDecodeError as e: print(e.lineno, e.colno, e.pos)
