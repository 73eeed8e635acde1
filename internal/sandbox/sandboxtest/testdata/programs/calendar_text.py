import calendar
c = calendar.TextCalendar(calendar.SUNDAY); print(c.formatmonth(2023, 10)); print(tuple(map(int, calendar.monthrange(2024, 2))), list(calendar.day_abbr), calendar.weekday(2000, 1, 1), calendar.timegm((2024, 1, 1, 0, 0, 0)))
print([d for d in calendar.Calendar().itermonthdates(2024, 2)][:2])
