class C:
    def __del__(self):
        while True: pass
c = C()
print("held so far", flush=True)
