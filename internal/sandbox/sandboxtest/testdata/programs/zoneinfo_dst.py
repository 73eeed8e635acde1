from datetime import datetime, timedelta
from zoneinfo import ZoneInfo
b = ZoneInfo("Europe/Berlin"); n = ZoneInfo("America/New_York")
for d in (datetime(2024, 3, 31, 1, 59, tzinfo=b), datetime(2024, 3, 31, 3, 0, tzinfo=b), datetime(2024, 10, 27, 2, 30, tzinfo=b), datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=b)):
    print(d.isoformat(), d.tzname(), d.dst(), d.astimezone(n).isoformat(), d.astimezone(ZoneInfo("UTC")).time())
print(datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Asia/Kolkata")).utcoffset())
