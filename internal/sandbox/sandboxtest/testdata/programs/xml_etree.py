import xml.etree.ElementTree as ET
root = ET.fromstring("<cat><book id='1'><t>A &amp; B</t><p>10</p></book><book id='2'><t>C</t><p>5.5</p></book></cat>")
for b in root.findall("book"): print(b.get("id"), b.find("t").text, float(b.findtext("p")))
print(root.find("book[@id='2']/t").text, len(list(root.iter())))
n = ET.SubElement(root, "book", id="3"); n.text = "<ü>"; root.remove(root[0]); ET.indent(root)
print(ET.tostring(root, encoding="unicode"))
try: ET.fromstring("<a><b></a>")
except ET.ParseError as e: print(e)
