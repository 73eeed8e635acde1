for p in "/etc/passwd", "/etc/kern", "/usr/kern", "/usr/lib/python3.13/json/__init__.pyc", "/lib/kern", "/bin/kern", "/root/kern", "/dev/kern", "/sys/kern", "/var/kern", "/kern":
    attempt(p, lambda: open(p, "w").write("x"))
attempt("usr", lambda: os.remove("/usr/lib"))
attempt("mkdir", lambda: os.mkdir("/usr/x"))
attempt("rename", lambda: os.rename("/usr", "/usr2"))
