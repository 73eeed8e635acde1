import threading, queue, contextvars
l = threading.RLock()
with l:
    with l: print("reentrant", threading.current_thread() is threading.main_thread())
e = threading.Event(); e.set(); print(e.wait(0), threading.active_count())
q = queue.PriorityQueue(); [q.put(x) for x in (3, 1, 2)]; print([q.get() for _ in range(3)], q.empty())
try: q.get_nowait()
except queue.Empty: print("empty")
v = contextvars.ContextVar("v", default=0); t = v.set(5); print(v.get()); v.reset(t); print(v.get()); loc = threading.local(); loc.x = 1; print(loc.x)
