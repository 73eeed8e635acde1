import csv
text = "id\tname\tprice\n1\tpear\t0.5\n2\tfig\t1.25\n"
d = csv.Sniffer().sniff(text)
print(repr(d.delimiter), csv.Sniffer().has_header(text))
for row in csv.reader(text.splitlines(), d): print(row)
