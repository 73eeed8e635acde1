rows = [("Zürich", 1.5), ("東京", 22), ("São Paulo", -3)]
import unicodedata; wid = lambda s: sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in s)
for n, v in rows: print("│ " + n + " " * (12 - wid(n)) + f"│ {v:>6} │")
print("─" * 20, "█" * 5 + "░" * 3)
