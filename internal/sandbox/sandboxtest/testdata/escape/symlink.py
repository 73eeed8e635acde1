def through(target, rest=""):
    os.symlink(target, "link")
    try:
        return open("link" + rest).read()
    finally:
        os.unlink("link")
attempt("absolute", lambda: through(FILE))
attempt("directory", lambda: through(DIR, "/canary"))
attempt("root", lambda: through("/", FILE))
attempt("relative", lambda: through("../" * 20 + FILE.lstrip("/")))
def chain():
    os.mkdir("d"); os.symlink("..", "d/up"); os.symlink("d/up/../" + "../" * 15 + FILE.lstrip("/"), "link2")
    return open("link2").read()
attempt("chain", chain)
def written():
    os.symlink(DIR, "link3")
    return open("link3/new", "w").write("x")
attempt("write", written)
