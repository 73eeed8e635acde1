attempt("system", lambda: libc().system(b"cat " + FILE.encode()) == 0 or 1 / 0)
def read():
    l = libc()
    fd = l.open(FILE.encode(), 0)
    if fd < 0: raise OSError
    return os.read(fd, 100)
attempt("open", read)
