import zipfile, io
b = io.BytesIO()
with zipfile.ZipFile(b, "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("a.txt", "hello " * 100); z.writestr("d/b.txt", "x")
with zipfile.ZipFile(b) as z:
    print(z.namelist(), z.read("a.txt")[:11], [(i.filename, i.file_size) for i in z.infolist()], z.testzip())
    z.extractall("out")
print(open("out/d/b.txt").read(), zipfile.is_zipfile(b))
