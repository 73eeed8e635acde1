import socket
attempt("connect", lambda: socket.create_connection(("127.0.0.1", PORT), 2))
attempt("localhost", lambda: socket.create_connection(("localhost", PORT), 2))
attempt("v6", lambda: socket.create_connection(("::1", PORT), 2))
attempt("mapped", lambda: socket.create_connection(("::ffff:127.0.0.1", PORT), 2))
attempt("http", lambda: __import__("urllib.request").request.urlopen(f"http://127.0.0.1:{PORT}/", timeout=2).read())
def scan():
    s = socket.socket(); s.settimeout(2)
    s.connect(("127.0.0.1", PORT)); s.send(b"x")
    return s
attempt("raw connect", scan)
