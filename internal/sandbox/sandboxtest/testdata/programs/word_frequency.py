text = """It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness"""
import re; from collections import Counter
w = re.findall(r"[a-z']+", text.lower()); c = Counter(w)
for word, n in sorted(c.items(), key=lambda t: (-t[1], t[0]))[:6]: print(f"{word:<6}{n:>3} {'#' * n}")
print(len(w), len(c), sum(map(len, w)) / len(w), Counter(zip(w, w[1:])).most_common(2))
