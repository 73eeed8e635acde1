import signal
def make():
    os.mkfifo("pipe")
    fd = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.close(fd)
look("fifo", make)
