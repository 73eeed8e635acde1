import stat
attempt("mknod c", lambda: (os.mknod("null2", stat.S_IFCHR | 0o666, os.makedev(1, 1)), open("null2", "rb").read(1)))
attempt("mknod b", lambda: (os.mknod("disk", stat.S_IFBLK | 0o666, os.makedev(254, 0)), open("disk", "rb").read(1)))
for d in "/dev/sda", "/dev/vda", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/loop-control", "/dev/net/tun":
    attempt(d, lambda: open(d, "rb").read(1))
