import csv, io
rows = [{"name": "Ann, B", "age": 31, "note": 'said "hi"'}, {"name": "Bo", "age": 4, "note": "two\nlines"}]
f = io.StringIO()
w = csv.DictWriter(f, fieldnames=["name", "age", "note"]); w.writeheader(); w.writerows(rows)
print(repr(f.getvalue()))
back = list(csv.DictReader(io.StringIO(f.getvalue())))
print(back, sum(int(r["age"]) for r in back))
print(list(csv.reader(["a;b;'c;d'"], delimiter=";", quotechar="'")))
