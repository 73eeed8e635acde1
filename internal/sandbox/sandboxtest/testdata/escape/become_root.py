for name, f in dict(setuid=lambda: os.setuid(0), setgid=lambda: os.setgid(0), setreuid=lambda: os.setreuid(0, 0), setresuid=lambda: os.setresuid(0, 0, 0), groups=lambda: os.setgroups([0])).items():
    attempt(name, f)
attempt("nice", lambda: os.nice(-5))
attempt("chown", lambda: (open("x", "w").close(), os.chown("x", 0, 0)))
def setuid_bit():
    open("s", "w").close(); os.chmod("s", 0o4777)
    return os.spawnv(os.P_WAIT, "/usr/bin/su", ["su", "-c", "id"]) or 1 / 0
look("suid", setuid_bit)
