import shlex, string
print(shlex.split("run 'a b' --x=\"c d\" e\\ f # no", comments=True), shlex.quote("it's"), shlex.join(["a", "b c"]))
print(string.ascii_lowercase, string.digits, string.punctuation, string.capwords("hello big world"))
class F(string.Formatter):
    def get_value(s, k, a, kw): return kw.get(k, f"<{k}>") if isinstance(k, str) else a[k]
print(F().format("{a} {b} {0}", 9, a=1))
