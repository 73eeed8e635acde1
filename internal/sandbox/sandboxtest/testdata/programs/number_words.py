ones = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(); tens = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
def words(n):
    if n < 20: return ones[n]
    if n < 100: return tens[n // 10] + ("-" + ones[n % 10] if n % 10 else "")
    for v, s in ((10 ** 6, "million"), (1000, "thousand"), (100, "hundred")):
        if n >= v: return words(n // v) + " " + s + (" " + words(n % v) if n % v else "")
for n in (0, 13, 42, 100, 999, 12345, 7000001): print(n, words(n))
