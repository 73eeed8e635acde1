import ipaddress as ip
n = ip.ip_network("192.168.0.0/29"); print(list(n.hosts())[:2], n.num_addresses, n.broadcast_address, ip.ip_address("192.168.0.3") in n, list(n.subnets(1)), ip.ip_address("::1").is_loopback, ip.ip_address("2001:db8::1").exploded)
try: ip.ip_address("300.1.1.1")
except ValueError as e: print(e)
