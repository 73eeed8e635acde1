l = list(range(10)); del l[2:5], l[-1]; print(l); l[::2] = "abc"; print(l); d = {"a": 1}; del d["a"]; print(d, l[10:], l[-3:-1], "abcdef"[-2:0:-2], slice(1, 9, 3).indices(5))
class G:
    def __getitem__(s, k): return k
print(G()[1:2, ..., None], G()["a"])
