b = bytearray(b"hello"); b[0] = 72; b += b" \x00\xff"; print(b, b.hex(" "), bytes(3), b.find(b"l"), b[1:3], list(b[:3]), b.decode("latin-1")[:5])
import struct, array
print(struct.pack(">IhB", 1, -2, 255), struct.unpack("<f", struct.pack("<f", 1.5)), struct.calcsize("<3sQ"), int.from_bytes(b"\x01\x00", "big"), (1000).to_bytes(2, "little"), (-1).to_bytes(2, "big", signed=True))
m = memoryview(b)[1:4]; m[0] = 69; print(b, m.tolist()); a = array.array("d", [1.5, 2]); print(a, a.itemsize, b"%s-%d" % (b"x", 3))
