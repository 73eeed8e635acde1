mine = set()
for fd in range(3, 1024):
    try: st = os.fstat(fd)
    except OSError: continue
    look(f"fd {fd}", lambda: (st.st_mode, os.readlink(f"/proc/self/fd/{fd}")))
    attempt(f"from fd {fd}", lambda: open(os.open("../" * 20 + FILE.lstrip("/"), os.O_RDONLY, dir_fd=fd)).read())
    attempt(f"name in fd {fd}", lambda: os.open(os.path.basename(FILE), os.O_RDONLY, dir_fd=fd))
print("held the rest")
