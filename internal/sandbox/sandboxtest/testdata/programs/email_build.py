from email.message import EmailMessage
from email import message_from_string, policy
m = EmailMessage(); m["Subject"] = "Grüße"; m["From"] = "a@x.org"; m["To"] = "b@y.org"; m.set_content("Hi\nthere\n")
t = m.as_string(); print(t)
p = message_from_string(t, policy=policy.default); print(p["subject"], p.get_content_type(), p.get_content())
from email.utils import parseaddr, formataddr; print(parseaddr("Ann B <ann@x.org>"), formataddr(("B", "b@x")))
