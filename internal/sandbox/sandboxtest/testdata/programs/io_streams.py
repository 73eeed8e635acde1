import io, sys
s = io.StringIO("one\ntwo\n"); print(s.readline(), list(s)); b = io.BytesIO(); b.write(b"abc"); b.seek(1); print(b.read(), b.getvalue())
print("a", "b", sep="|", end="!\n"); print("err", file=sys.stderr); sys.stdout.write("w\n"); print(*[1, 2], sep="\n", flush=True)
old = sys.stdout; sys.stdout = io.StringIO(); print("captured"); got = sys.stdout.getvalue(); sys.stdout = old; print(repr(got))
t = io.TextIOWrapper(io.BytesIO(b"a\r\nb\xc3\xa9"), encoding="utf-8"); print(t.read().splitlines())
