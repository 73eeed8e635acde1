def sparse():
    with open("big", "wb") as f:
        f.truncate(1 << 40)
look("truncate", sparse)
def seek():
    with open("big2", "wb") as f:
        f.seek(1 << 40); f.write(b"x")
look("seek", seek)
look("fallocate", lambda: os.posix_fallocate(os.open("big3", os.O_CREAT | os.O_RDWR), 0, 1 << 30))
held = sum(os.stat(f).st_blocks * 512 if hasattr(os.stat(f), "st_blocks") and os.stat(f).st_blocks else min(os.stat(f).st_size, 1 << 62) for f in os.listdir(".") if os.path.isfile(f))
if held > 8 << 20: print("ESCAPED", held)
