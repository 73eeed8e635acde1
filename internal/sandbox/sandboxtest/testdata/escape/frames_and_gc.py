import gc
frame = sys._getframe()
depth = 0
while frame.f_back:
    frame, depth = frame.f_back, depth + 1
look("frames", lambda: depth)
attempt("objects", lambda: [o for o in gc.get_objects() if isinstance(o, str) and o.startswith("canary-")][0])
attempt("referrers", lambda: [o for o in gc.get_referrers(os) if isinstance(o, dict) and "KERN_CANARY" in o][0])
