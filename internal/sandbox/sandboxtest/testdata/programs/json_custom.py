import json, datetime, decimal
class Enc(json.JSONEncoder):
    def default(self, o):
        if isinstance(o, (datetime.date, datetime.datetime)): return o.isoformat()
        if isinstance(o, decimal.Decimal): return str(o)
        if isinstance(o, set): return sorted(o)
        return super().default(o)
print(json.dumps({"d": datetime.date(2024, 2, 29), "x": decimal.Decimal("1.10"), "s": {3, 1, 2}}, cls=Enc))
def hook(d): return {k.upper(): v for k, v in d.items()}
print(json.loads('{"a": {"b": 1}}', object_hook=hook), json.loads("[1.5]", parse_float=decimal.Decimal))
try: json.dumps({"f": object})
except TypeError as e: print(e)
