from enum import Enum, auto
class S(Enum): IDLE = auto(); RUN = auto(); DONE = auto()
T = {(S.IDLE, "start"): S.RUN, (S.RUN, "stop"): S.IDLE, (S.RUN, "finish"): S.DONE}
s = S.IDLE
for e in "start stop finish start finish".split():
    n = T.get((s, e)); print(f"{s.name} --{e}--> {n.name if n else 'refused'}"); s = n or s
