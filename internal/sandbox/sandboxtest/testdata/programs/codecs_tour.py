for enc in ("utf-8", "utf-16", "utf-16-le", "utf-32-be", "latin-1", "cp1252", "utf-8-sig", "utf-7", "shift_jis", "gb18030", "koi8-r", "cp437"):
    t = {"shift_jis": "日本", "gb18030": "中文", "koi8-r": "Привет", "cp437": "é"}.get(enc, "hé")
    print(enc, t.encode(enc), t.encode(enc).decode(enc) == t)
try: b"\xff\xfe\xfa".decode("utf-8")
except UnicodeDecodeError as e: print(e)
print(b"a\xffb".decode("utf-8", "replace"), b"a\xffb".decode("utf-8", "backslashreplace"), b"a\xff".decode("utf-8", "surrogateescape").encode("utf-8", "surrogateescape"))
import codecs; print(codecs.encode("hello", "rot13"), codecs.lookup("utf8").name, "bücher".encode("idna"), "bücher".encode("punycode"))
