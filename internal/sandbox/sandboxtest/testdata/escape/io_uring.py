attempt("setup", lambda: syscall(425, 8, b"\0" * 120))
attempt("enter", lambda: syscall(426, 3, 1, 1, 1, 0, 0))
attempt("register", lambda: syscall(427, 3, 0, 0, 0))
