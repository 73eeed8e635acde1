from datetime import datetime, date, timedelta, timezone
d = datetime(2024, 2, 28, 23, 30, tzinfo=timezone.utc)
print(d + timedelta(hours=1), (d + timedelta(days=2)).strftime("%A %d %B %Y, %H:%M %j %U"), d.isoformat(), d.timestamp())
print(datetime.strptime("03/04/2021 5:06 PM", "%d/%m/%Y %I:%M %p"), date(2024, 12, 30).isocalendar())
print((date(2024, 3, 1) - date(2024, 2, 1)).days, timedelta(seconds=100000), str(timedelta(days=-1, hours=3)))
print(d.astimezone(timezone(timedelta(hours=5, minutes=30))), datetime.fromisoformat("2024-05-06T07:08:09+02:00").utcoffset())
print(d.replace(day=1).weekday(), date.fromordinal(738000), datetime.min, date.max)
