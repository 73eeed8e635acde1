import html
from html.parser import HTMLParser
class P(HTMLParser):
    def __init__(s): super().__init__(); s.links, s.text = [], []
    def handle_starttag(s, tag, attrs):
        if tag == "a": s.links.append(dict(attrs).get("href"))
    def handle_data(s, d): s.text.append(d.strip())
p = P(); p.feed("<html><body><h1>Hi</h1><a href='/x?a=1&amp;b=2'>one</a><br/><a>two &lt;</a></body>")
print(p.links, [t for t in p.text if t]); print(html.escape("<a href=\"x\">'&'</a>"), html.unescape("&eacute;&#8364;&lt;&nbsp;|"))
