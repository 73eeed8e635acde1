import socket
attempt("getaddrinfo", lambda: socket.getaddrinfo("kern.invalid.example.com", 80))
attempt("gethostbyname", lambda: socket.gethostbyname("one.one.one.one"))
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1)
    s.sendto(b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03one\x03one\x00\x00\x01\x00\x01", ("1.1.1.1", 53))
    return s.recv(100)
attempt("udp", udp)
