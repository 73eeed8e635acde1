import colorsys, binascii, quopri, stat, keyword, errno, os
print([round(x, 3) for x in colorsys.rgb_to_hsv(0.2, 0.4, 0.6)], binascii.crc32(b"x"), quopri.encodestring("ü=".encode()), stat.filemode(0o100644), keyword.iskeyword("match"), errno.errorcode[errno.EPERM] if errno.EPERM == 1 else "EPERM")
