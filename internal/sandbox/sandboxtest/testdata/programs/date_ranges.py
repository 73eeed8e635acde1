from datetime import date, timedelta
holidays = {date(2024, 5, 1), date(2024, 5, 9)}
def work(a, b): return sum(1 for i in range((b - a).days + 1) if (d := a + timedelta(i)).weekday() < 5 and d not in holidays)
print(work(date(2024, 5, 1), date(2024, 5, 31))); def_ = lambda b, t: t.year - b.year - ((t.month, t.day) < (b.month, b.day)); print(def_(date(2000, 2, 29), date(2024, 2, 28)), def_(date(2000, 2, 29), date(2024, 3, 1)))
easter = lambda y: (lambda a, b, c: (lambda d, e, f, g: (lambda h, i, k: (lambda l: (lambda m: date(y, (h + l - 7 * m + 114) // 31, (h + l - 7 * m + 114) % 31 + 1))((a + 11 * h + 22 * l) // 451))((32 + 2 * e + 2 * i - h - k) % 7))((19 * a + b - d - ((b - (b + 8) // 25 + 1) // 3) + 15) % 30, c // 4, c % 4))(b // 4, b % 4, 0, 0))(y % 19, y // 100, y % 100); print(easter(2024), easter(2025))
