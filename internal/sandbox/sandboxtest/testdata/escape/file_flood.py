for i in range(100_000):
    open(f"f{i}", "w").close()
