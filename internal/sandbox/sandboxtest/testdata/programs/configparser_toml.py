import configparser, tomllib, io
c = configparser.ConfigParser(); c.read_string("[DEFAULT]\nx = 1\n[db]\nhost = h ; no\nport = %(x)s0\non = yes\n")
print(c.sections(), c["db"]["host"], c.getint("db", "port"), c.getboolean("db", "on"), c.get("db", "q", fallback="f"))
f = io.StringIO(); c.write(f); print(f.getvalue())
print(tomllib.loads('a = 1\n[t]\nb = [1.5, "x"]\nd = 2024-01-02\n[[l]]\nn = 1\n'))
try: tomllib.loads("a = ")
except tomllib.TOMLDecodeError as e: print("bad toml")
