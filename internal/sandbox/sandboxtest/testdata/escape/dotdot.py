for n in range(1, 12):
    attempt(n, lambda: open("../" * n + FILE.lstrip("/")).read())
    attempt(-n, lambda: open("/workspace/" + "../" * n + FILE.lstrip("/"), "w"))
os.makedirs("a/b/c", exist_ok=True)
os.chdir("a/b/c")
attempt("from below", lambda: open("../" * 20 + FILE.lstrip("/")).read())
def chdir():
    os.chdir("/" + "../" * 20)
    return open(FILE.lstrip("/")).read()
attempt("chdir", chdir)
