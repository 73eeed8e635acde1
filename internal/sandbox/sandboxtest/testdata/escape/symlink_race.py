os.mkdir("real")
open("real/canary", "w").write("mine")
def race():
    for i in range(300):
        try:
            os.symlink(DIR, "swap")
            os.rename("swap", "real2")
        except OSError: pass
        try:
            got = open("real2/canary").read()
            if got != "mine": return got
        except OSError: pass
        try: os.unlink("real2")
        except OSError: pass
    raise OSError("never")
attempt("race", race)
