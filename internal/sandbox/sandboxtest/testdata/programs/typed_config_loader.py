from dataclasses import dataclass, field, fields, is_dataclass
from typing import get_type_hints
@dataclass
class DB: host: str = "localhost"; port: int = 5432
@dataclass
class Cfg: name: str; db: DB = field(default_factory=DB); debug: bool = False
def load(cls, d, path=""):
    h, kw = get_type_hints(cls), {}
    for k, v in d.items():
        if k not in h: raise KeyError(f"unknown key {path}{k}")
        kw[k] = load(h[k], v, path + k + ".") if is_dataclass(h[k]) else v
        if not is_dataclass(h[k]) and not isinstance(v, h[k]): raise TypeError(f"{path}{k}: want {h[k].__name__}, got {v!r}")
    return cls(**kw)
print(load(Cfg, {"name": "x", "db": {"port": 1}}))
for bad in ({"name": 1}, {"name": "x", "db": {"hst": 1}}):
    try: load(Cfg, bad)
    except (KeyError, TypeError) as e: print(e)
