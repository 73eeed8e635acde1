# zones.py IN OUT: the time zones below IN as files of version 2 and later of
# the format only, which is all that Python reads, and without links.
import os
import struct
import sys

source, out = sys.argv[1:]
for directory, names, files in os.walk(source):
    names[:] = sorted(n for n in names if n not in ("right", "posix"))
    for name in sorted(files):
        path = os.path.join(directory, name)
        with open(path, "rb") as f:
            data = f.read()
        if data[:4] != b"TZif" or name in ("localtime", "posixrules"):
            continue
        isut, isstd, leap, times, types, chars = struct.unpack(">6l", data[20:44])
        second = data[44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut:]
        if second[:4] != b"TZif":
            raise SystemExit(f"{path}: want version 2 of the format or later")
        target = os.path.join(out, os.path.relpath(path, source))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as f:
            f.write(data[:20] + struct.pack(">6l", 0, 0, 0, 0, 1, 1) + bytes(7) + second)
