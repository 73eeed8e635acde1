rows = [["Name", "Qty"], ["apple", "3"], ["watermelon", "12"]]
w = [max(len(r[i]) for r in rows) for i in range(2)]
line = lambda r: "| " + " | ".join(c.ljust(n) for c, n in zip(r, w)) + " |"
print("\n".join([line(rows[0]), "|" + "|".join("-" * (n + 2) for n in w) + "|", *map(line, rows[1:])]))
import re; md = "# T\n**b** and *i* `c` [l](u)"
for p, s in ((r"^# (.*)$", r"<h1>\1</h1>"), (r"\*\*(.+?)\*\*", r"<b>\1</b>"), (r"\*(.+?)\*", r"<i>\1</i>"), (r"`(.+?)`", r"<code>\1</code>"), (r"\[(.+?)\]\((.+?)\)", r'<a href="\2">\1</a>')): md = re.sub(p, s, md, flags=re.M)
print(md)
