for mode in "w", "a", "r+", "x":
    attempt(mode, lambda: open(FILE, mode).write("broken"))
    attempt(mode + " new", lambda: open(DIR + "/new", mode).write("broken"))
attempt("remove", lambda: os.remove(FILE))
attempt("truncate", lambda: os.truncate(FILE, 0))
attempt("mkdir", lambda: os.mkdir(DIR + "/new"))
attempt("rmtree", lambda: __import__("shutil").rmtree(DIR))
look("chmod", lambda: os.chmod(FILE, 0))
attempt("utime", lambda: os.utime(FILE, (1, 1)))
