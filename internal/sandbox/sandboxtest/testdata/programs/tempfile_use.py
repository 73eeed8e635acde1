import tempfile, os
with tempfile.TemporaryDirectory() as d:
    p = os.path.join(d, "x"); open(p, "w").write("hi"); print(open(p).read())
print(os.path.exists(d))
with tempfile.NamedTemporaryFile("w+", suffix=".txt", delete=True) as f: f.write("abc"); f.seek(0); print(f.read(), f.name.endswith(".txt"))
with tempfile.TemporaryFile() as f: f.write(b"x" * 10); print(f.tell())
s = tempfile.SpooledTemporaryFile(max_size=5); s.write(b"0123456789"); s.seek(0); print(s.read())
