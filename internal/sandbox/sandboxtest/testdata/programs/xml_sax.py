import xml.sax
class H(xml.sax.ContentHandler):
    def __init__(s): super().__init__(); s.depth = 0
    def startElement(s, n, a): print("  " * s.depth + n, dict(a.items())); s.depth += 1
    def endElement(s, n): s.depth -= 1
    def characters(s, c):
        if c.strip(): print("  " * s.depth + repr(c))
xml.sax.parseString(b"<r><i k='1'>x</i><i/></r>", H())
