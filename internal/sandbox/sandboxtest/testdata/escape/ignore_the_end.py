import time
print("held so far", flush=True)
while True:
    try:
        while True:
            try: time.sleep(0.01)
            except BaseException: continue
    except BaseException: pass
