import tarfile, io
b = io.BytesIO()
with tarfile.open(fileobj=b, mode="w:gz") as t:
    for n, c in (("a.txt", b"one"), ("d/b.bin", bytes(5))):
        i = tarfile.TarInfo(n); i.size = len(c); t.addfile(i, io.BytesIO(c))
b.seek(0)
with tarfile.open(fileobj=b) as t:
    print(t.getnames(), t.extractfile("a.txt").read(), [(m.name, m.size, m.isfile()) for m in t])
