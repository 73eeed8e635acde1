from urllib.parse import urlparse, parse_qs, urlencode, urljoin, quote, unquote, urlunparse, parse_qsl, urlsplit
u = urlparse("https://u:p@ex.org:8080/a/b;x?q=1&q=2&e=#frag"); print(u, u.hostname, u.port, parse_qs(u.query), parse_qsl("a=1&b=", keep_blank_values=True))
print(urlencode({"a b": "ü&", "l": [1, 2]}, doseq=True), urljoin("http://h/a/b", "../c?x"), quote("a/b ü"), unquote("%C3%BC+"), urlunparse(u._replace(netloc="n")), urlsplit("//h/p").netloc)
