hoard = []
while True:
    hoard.append(bytearray(b"x") * (1 << 20))
