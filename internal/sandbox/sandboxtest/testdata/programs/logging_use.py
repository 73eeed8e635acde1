import logging, io
s = io.StringIO(); h = logging.StreamHandler(s); h.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
log = logging.getLogger("app.db"); log.addHandler(h); log.setLevel(logging.INFO); log.propagate = False
log.debug("no"); log.info("hello %s", "x"); log.warning("w %d", 3)
try: 1 / 0
except ZeroDivisionError: log.exception("failed")
t = s.getvalue().splitlines(); print(t[:3], t[-1], logging.getLevelName(30), log.parent.name)
