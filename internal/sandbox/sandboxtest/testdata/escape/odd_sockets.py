import socket
families = dict(VSOCK=40, NETLINK=16, PACKET=17, BLUETOOTH=31, ALG=38, KEY=15, RDS=21, TIPC=30, XDP=44, CAN=29, NFC=39)
for name, n in families.items():
    for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM, getattr(socket, "SOCK_RAW", 3), getattr(socket, "SOCK_SEQPACKET", 5):
        attempt(f"{name} {kind}", lambda: socket.socket(n, kind, 0))
attempt("raw", lambda: socket.socket(socket.AF_INET, getattr(socket, "SOCK_RAW", 3), 1))
