# compile.py LIB OUT: the standard library below LIB as .pyc files below OUT,
# without what cannot work where there are no processes, sockets and screens.
import importlib.util
import marshal
import os
import sys

LEFT_OUT = set("""
__pycache__ test idlelib tkinter turtledemo turtle.py ensurepip ctypes venv lib2to3 pydoc_data curses sqlite3 dbm msilib
site-packages antigravity.py _android_support.py _apple_support.py _ios_support.py _osx_support.py _aix_support.py
pty.py tty.py ssl.py
""".split())

lib, out = sys.argv[1:]
for directory, names, files in os.walk(lib):
    names[:] = sorted(n for n in names if n not in LEFT_OUT)
    below = os.path.relpath(directory, lib)
    for name in sorted(files):
        if not name.endswith(".py") or name in LEFT_OUT:
            continue
        path = os.path.normpath(os.path.join(below, name))
        with open(os.path.join(directory, name), "rb") as f:
            code = compile(f.read(), "/usr/lib/python3.13/" + path, "exec", dont_inherit=True, optimize=0)
        target = os.path.join(out, path + "c")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as f:
            f.write(importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
