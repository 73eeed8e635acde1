from xml.dom import minidom
d = minidom.parseString('<a x="1"><b>t</b><!-- c --><b/></a>')
print([n.nodeName for n in d.documentElement.childNodes], d.documentElement.getAttribute("x"), d.getElementsByTagName("b")[0].firstChild.data)
e = d.createElement("n"); e.setAttribute("k", 'v"'); d.documentElement.appendChild(e); print(d.documentElement.toxml())
