look("tmp", lambda: os.listdir("/tmp"))
for d in "/tmp", "/var/tmp", "/dev/shm", "/run", "/workspace":
    attempt(f"foreign files in {d}", lambda: [n for n in os.listdir(d) if "kern" in n][0])
attempt("workspace on the host", lambda: os.listdir(os.environ["BAIT_WORKSPACE"]))
