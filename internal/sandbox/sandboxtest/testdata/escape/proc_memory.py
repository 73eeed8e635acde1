for p in 1, PID, os.getppid() if hasattr(os, "getppid") else 1:
    if p != os.getpid():
        attempt(f"mem {p}", lambda: open(f"/proc/{p}/mem", "rb").read(1) if p not in (0,) else 1 / 0)
for f in "/dev/mem", "/dev/kmem", "/proc/kcore", "/dev/port":
    attempt(f, lambda: open(f, "rb").read(1))
