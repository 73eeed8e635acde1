class Bucket:
    def __init__(s, rate, cap): s.rate, s.cap, s.tok, s.t = rate, cap, cap, 0.0
    def allow(s, t):
        s.tok = min(s.cap, s.tok + (t - s.t) * s.rate); s.t = t
        if s.tok >= 1: s.tok -= 1; return True
        return False
b = Bucket(2, 3); print([b.allow(t) for t in (0, 0, 0, 0, 0.5, 0.6, 2, 2, 2, 2)])
