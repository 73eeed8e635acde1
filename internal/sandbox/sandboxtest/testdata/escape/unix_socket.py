import socket
def reach(path):
    s = socket.socket(socket.AF_UNIX); s.settimeout(2); s.connect(path); return s
for p in SOCKET, "/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/systemd/private":
    attempt(p[-12:], lambda: reach(p))
