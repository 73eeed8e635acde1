def flat(o, p=""): return {k: v for kk, vv in (o.items() if isinstance(o, dict) else enumerate(o)) for k, v in (flat(vv, f"{p}{kk}.").items() if isinstance(vv, (dict, list)) and vv else {f"{p}{kk}": vv}.items())}
print(flat({"a": {"b": [1, {"c": 2}], "d": {}}, "e": None}))
import json; print(json.dumps(json.loads('{"z":1,"a":[{"y":2,"x":1}]}'), sort_keys=True, separators=(",", ":")))
ld = '{"a":1}\n{"a":2}\n'; print(sum(json.loads(l)["a"] for l in ld.splitlines()))
