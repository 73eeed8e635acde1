import difflib
a, b = "one\ntwo\nthree\n".splitlines(), "one\ntwo!\nthree\nfour\n".splitlines()
print("\n".join(difflib.unified_diff(a, b, "a", "b", lineterm=""))); print(difflib.get_close_matches("appel", ["ape", "apple", "peach"]), round(difflib.SequenceMatcher(None, "abcd", "bcde").ratio(), 3))
print(list(difflib.ndiff(["a"], ["b"])), difflib.SequenceMatcher(None, "qabxcd", "abycdf").get_opcodes())
