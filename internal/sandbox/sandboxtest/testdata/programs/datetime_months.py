from datetime import date, timedelta
import calendar
def add_months(d, n):
    y, m = divmod(d.month - 1 + n, 12)
    y += d.year
    return date(y, m + 1, min(d.day, calendar.monthrange(y, m + 1)[1]))
for n in (-13, -1, 0, 1, 12): print(n, add_months(date(2024, 1, 31), n))
print(calendar.month(2024, 2)); print(calendar.isleap(1900), calendar.leapdays(1900, 2001))
fridays = [date(2024, 1, 1) + timedelta(i) for i in range(366)]
print(len([d for d in fridays if d.weekday() == 4 and d.day == 13]))
