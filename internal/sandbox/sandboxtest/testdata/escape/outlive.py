import signal, time
for s in ("SIGTERM", "SIGINT", "SIGHUP"):
    try: signal.signal(getattr(signal, s), signal.SIG_IGN)
    except (ValueError, OSError, AttributeError): pass
print("held so far", flush=True)
for i in range(20):
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(4)
                try: open(DIR + "/outlived", "w").close()
                except OSError: pass
                open("outlived", "w").close()
                os._exit(0)
            os._exit(0)
    except (OSError, AttributeError): break
time.sleep(30)
