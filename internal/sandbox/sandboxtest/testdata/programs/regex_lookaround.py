import re
print(re.findall(r"(?<=\$)\d+(?:\.\d\d)?", "$10 $3.50 4.20 $7"))
print(re.sub(r"(?<!^)(?=[A-Z])", "_", "camelCaseToSnakeCase").lower())
print(re.match(r"^(?=.*\d)(?=.*[a-z])(?=.*[A-Z]).{8,}$", "Passw0rdX") is not None)
print(re.fullmatch(r"(\w+)@(\w+\.)+\w+", "joe@mail.example.org").groups())
print(re.sub(r"(\w+) (\w+)", r"\2 \1", "hello world foo bar"), re.escape("a.b*c"))
print(re.findall(r"(?i)straße|STRASSE", "Straße strasse"), re.sub(r"\s+", " ", "a \t\n b\u00a0c"))
