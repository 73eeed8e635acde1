import re, collections, datetime as dt
log = """10.0.0.1 - - [01/Feb/2024:10:00:01 +0000] "GET /a HTTP/1.1" 200 512
10.0.0.2 - - [01/Feb/2024:10:00:05 +0000] "POST /b HTTP/1.1" 500 12
10.0.0.1 - - [01/Feb/2024:10:01:00 +0000] "GET /a?x=1 HTTP/1.1" 404 0"""
rx = re.compile(r'(\S+) .*?\[(.*?)\] "(\w+) (\S+) [^"]*" (\d+) (\d+)')
rows = [rx.match(l).groups() for l in log.splitlines()]
print(collections.Counter(r[4][0] + "xx" for r in rows), sum(int(r[5]) for r in rows), {r[0] for r in rows} == {"10.0.0.1", "10.0.0.2"})
t = [dt.datetime.strptime(r[1], "%d/%b/%Y:%H:%M:%S %z") for r in rows]; print(t[-1] - t[0], t[0].isoformat())
