import unicodedata
s = "Ärger im Café — 10 €, naïve ﬁ Ⅻ ½ 日本語 👩‍👧"
print(len(s), s.upper(), s.casefold(), s.encode("utf-8").hex()[:40], s.encode("ascii", "replace"), s.encode("ascii", "xmlcharrefreplace")[:20])
print(unicodedata.normalize("NFKD", "ﬁⅫé").encode("ascii", "ignore"), [unicodedata.category(c) for c in "aA1 -€"], unicodedata.name("€"), unicodedata.numeric("½"))
print("".join(c for c in unicodedata.normalize("NFD", "Crème Brûlée") if not unicodedata.combining(c)), "ß".upper(), "İ".lower().encode(), "straße".casefold() == "STRASSE".casefold())
print("日本".ljust(5, "*"), f"{'é':>4}|", "a\u0301" == "á", "x".isidentifier(), "٣".isdigit(), int("٣"), ascii("é\n"), "\N{SNOWMAN}")
