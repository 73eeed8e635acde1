import importlib, importlib.util, importlib.machinery
for name in "posix", "_posixsubprocess", "_ctypes", "_socket", "_winapi", "mmap":
    def reach():
        m = importlib.import_module(name)
        for f in ("open", "fork_exec", "dlopen"):
            if hasattr(m, f):
                r = getattr(m, f)(FILE, 0)
                return os.read(r, 100) if isinstance(r, int) else r
        raise OSError("nothing here")
    attempt(name, reach)
attempt("extension", lambda: importlib.machinery.ExtensionFileLoader("x", FILE).load_module())
attempt("source", lambda: importlib.machinery.SourceFileLoader("x", FILE).get_data(FILE))
attempt("spec", lambda: importlib.util.spec_from_file_location("x", FILE).loader.get_data(FILE))
