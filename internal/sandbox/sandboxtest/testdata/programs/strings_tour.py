s = "  Hello, World  "
print(s.strip().lower().replace("o", "0"), s.split(","), s.strip().partition(", "), "a-b-c".rsplit("-", 1), s.find("World"), s.count("l"), "abc".center(9, "."), "x".join("abc"))
print("Title case here".title(), "swap".swapcase(), "abc".startswith(("x", "a")), "007".zfill(5), "a\tb".expandtabs(4), "line1\nline2\r\nline3".splitlines(), "aXbX".removesuffix("X"), "abc"[::-1])
print("abc".translate(str.maketrans("ab", "xy", "c")), "%d items" % 3, "a" < "B", sorted("bCa", key=str.lower), "é".isalpha(), "1½".isnumeric(), "ab" * 3, "b" in "abc", max("hello"), repr('it\'s "q"'))
