for p in "self", "1", str(PID), "thread-self":
    for f in "environ", "cmdline", "maps", "root" + FILE, "cwd/../../.." + FILE, "fd", "mountinfo", "attr/current":
        def show():
            path = f"/proc/{p}/{f}"
            return os.listdir(path) if f == "fd" else open(path, errors="replace").read()
        if f.startswith(("root", "cwd")) or p == str(PID) and f == "environ": attempt(f"{p}/{f[:8]}", show)
        else: look(f"{p}/{f}", show)
for f in "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/fs/cgroup/cgroup.procs", "/proc/sys/kernel/hostname":
    attempt(f, lambda: open(f, "w").write("x"))
