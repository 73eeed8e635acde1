import re
log = "2024-01-02 10:11:12 ERROR [db] timeout after 30s\n2024-01-02 10:11:13 INFO [web] ok\n"
pat = re.compile(r"^(?P<date>\S+) (?P<time>\S+) (?P<level>[A-Z]+) \[(?P<mod>\w+)\] (?P<msg>.*)$", re.M)
for m in pat.finditer(log): print(m.groupdict(), m.span("msg"))
print(re.sub(r"(\d+)s", lambda m: str(int(m[1]) * 2) + "s", log.splitlines()[0]))
print(re.split(r"[,;]\s*", "a, b;c,  d"), re.findall(r"\b\w{4}\b", "this is some text with words"))
