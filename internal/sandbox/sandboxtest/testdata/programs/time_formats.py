import time
t = time.gmtime(1700000000); print(time.strftime("%Y-%m-%d %H:%M:%S", t), t.tm_yday, time.mktime(time.strptime("2024-01-01", "%Y-%m-%d")) - time.mktime(time.strptime("2023-12-31", "%Y-%m-%d")), time.asctime(t))
a = time.perf_counter(); time.sleep(0.02); b = time.perf_counter(); print(0.019 < b - a < 2, time.monotonic() <= time.monotonic(), time.time() > 1.6e9, isinstance(time.time_ns(), int))
