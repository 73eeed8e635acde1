import threading, time
def bomb():
    for n in range(5000):
        threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
attempt("threads", bomb)
