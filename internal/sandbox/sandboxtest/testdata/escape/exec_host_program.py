import subprocess
def show(*argv):
    return subprocess.run(argv, capture_output=True, timeout=5).stdout
look("cat", lambda: show("cat", FILE))
look("sh", lambda: show("sh", "-c", "cat " + FILE + "; env; ls " + DIR))
look("find", lambda: show("find", DIR))
look("system", lambda: os.system("cat " + FILE))
look("popen", lambda: os.popen("cat " + FILE).read())
look("curl", lambda: show("curl", "-s", f"http://127.0.0.1:{PORT}/"))
look("pty", lambda: __import__("pty").spawn(["cat", FILE]))
