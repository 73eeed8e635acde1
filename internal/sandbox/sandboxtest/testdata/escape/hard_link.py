attempt("link", lambda: (os.link(FILE, "mine"), open("mine").read()))
attempt("link dir", lambda: os.link(DIR, "mined"))
attempt("proc link", lambda: (os.link("/proc/self/root" + FILE, "mine2"), open("mine2").read()))
attempt("back", lambda: (open("x", "w").close(), os.link("x", DIR + "/new")))
