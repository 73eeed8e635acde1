import gzip, zlib, io
data = b"abc" * 1000
z = zlib.compress(data, 9); print(len(z) < 60, zlib.decompress(z) == data, zlib.crc32(data), zlib.adler32(data))
with gzip.open("f.gz", "wt") as f: f.write("line\n" * 3)
with gzip.open("f.gz", "rt") as f: print(f.readlines())
d = zlib.decompressobj(); print(len(d.decompress(z[:10]) + d.decompress(z[10:]) + d.flush()))
try: zlib.decompress(b"nonsense")
except zlib.error as e: print("zlib.error")
