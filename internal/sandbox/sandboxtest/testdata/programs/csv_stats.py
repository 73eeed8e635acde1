import csv, io, statistics
data = "date,city,temp\n2024-01-01,Oslo,-3.5\n2024-01-01,Rome,11\n2024-01-02,Oslo,-1\n2024-01-02,Rome,\n"
by = {}
for r in csv.DictReader(io.StringIO(data)):
    try: by.setdefault(r["city"], []).append(float(r["temp"]))
    except ValueError: print("skipped", r)
for c, t in by.items(): print(c, len(t), min(t), max(t), statistics.mean(t))
w = csv.writer(open("o.csv", "w", newline=""), quoting=csv.QUOTE_NONNUMERIC); w.writerow(["a", 1, 2.5]); del w; print(open("o.csv").read())
