attempt("add_key", lambda: syscall(248, b"user", b"k", b"v", 1, -3))
attempt("request_key", lambda: syscall(249, b"user", b"k", None, -3))
attempt("keyctl", lambda: syscall(250, 0, -3, 1))
