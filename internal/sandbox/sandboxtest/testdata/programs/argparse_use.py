import argparse
p = argparse.ArgumentParser(prog="tool", description="Does things.")
p.add_argument("file"); p.add_argument("-n", "--num", type=int, default=3); p.add_argument("-v", action="count", default=0); p.add_argument("--mode", choices=["a", "b"])
s = p.parse_args(["in.txt", "-n", "5", "-vv", "--mode", "b"]); print(s)
print(p.parse_known_args(["f", "--other"])); print(p.format_usage().strip())
try: p.parse_args(["f", "-n", "x"])
except SystemExit as e: print("exit", e.code)
