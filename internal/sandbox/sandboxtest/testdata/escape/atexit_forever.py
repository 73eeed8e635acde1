import atexit
def forever():
    while True: pass
atexit.register(forever)
print("held so far", flush=True)
