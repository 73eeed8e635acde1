# The first thing an interpreter in a box runs. It takes the program's text from
# the socket that argv names, and is out of the way before that runs.
def _boot():
    import os
    import sys

    def take(n):
        parts = []
        while n:
            b = os.read(link, min(n, 1 << 20))
            if not b:
                raise EOFError("the host went away")
            parts.append(b)
            n -= len(b)
        return b"".join(parts)

    def frame():
        return take(int.from_bytes(take(4), "little"))

    def put(b):
        b = len(b).to_bytes(4, "little") + b
        while b:
            b = b[os.write(link, b):]

    link, rules, warm = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "warm"
    os.set_inheritable(link, False)
    restrict = None
    if warm:
        # What most programs want, read while nobody waits.
        import base64, collections, functools, itertools, json, linecache, math, random, re, threading, traceback
        if rules >= 0:
            import ctypes
            restrict = ctypes.CDLL(None, use_errno=True).syscall
        # What is here now stays; walking it again at exit would take longer
        # than most programs run.
        import gc
        gc.collect()
        gc.freeze()
        put(b"ready")
    env = frame()
    text = frame().decode()
    table = frame().decode()
    os.environ.clear()
    os.environb.update(p.split(b"=", 1) for p in env.split(b"\0") if p)
    if "TZ" in os.environ:
        import time
        time.tzset()
    if warm:
        random.seed()
        os.chdir("/workspace")
        if restrict is not None:
            # 446 is landlock_restrict_self, on every architecture.
            if restrict(446, rules, 0) != 0:
                put(b"landlock: " + os.strerror(ctypes.get_errno()).encode())
                os._exit(1)
            os.close(rules)
        put(b"taken")

    class Finder:
        """Finds the package tools and the namespaces in it."""

        functions = None

        def all(self):
            if self.functions is None:
                import json
                self.functions = json.loads(table) if table else []
            return self.functions

        def find_spec(self, name, path=None, target=None):
            head, _, space = name.partition(".")
            if head != "tools" or space and all(f["namespace"] != space for f in self.all()):
                return None
            from importlib.machinery import ModuleSpec
            return ModuleSpec(name, self, is_package=not space)

        def create_module(self, spec):
            return None

        def exec_module(self, module):
            space = module.__name__.partition(".")[2]
            if space:
                self.fill(module, space)
                return
            spaces = sorted({f["namespace"] for f in self.all()})
            module.ToolError = self.error()
            module.__all__ = ["ToolError"] + spaces

            def __getattr__(name):
                if name not in spaces:
                    raise AttributeError("module 'tools' has no attribute " + repr(name))
                import importlib
                return importlib.import_module("tools." + name)

            module.__getattr__ = __getattr__

        def error(self):
            class ToolError(Exception):
                """A tool failed: see code, message and fields."""

                def __init__(self, code, message="", fields=None):
                    super().__init__(code + ": " + message)
                    self.code, self.message, self.fields = code, message, fields or {}

            ToolError.__module__, ToolError.__qualname__ = "tools", "ToolError"
            return ToolError

        def fill(self, module, space):
            scope = {"__name__": module.__name__, "__call": self.caller()}
            module.__all__ = []
            for number, f in enumerate(self.all()):
                if f["namespace"] != space:
                    continue
                heads, steps = [], []
                for p in f["params"]:
                    typed = ": " + p["type"] if p["type"] else ""
                    heads.append(p["name"] + typed + (" = ..." if p["optional"] else ""))
                    unless = "    if {0} is not ...:\n    " if p["optional"] else ""
                    steps.append((unless + "    __args[{0!r}] = {0}\n").format(p["name"]))
                exec("def {}({}):\n    {!r}\n    __args = {{}}\n{}    return __call({}, __args)\n".format(
                    f["name"], ", ".join(heads), f["doc"], "".join(steps), number), scope)
                setattr(module, f["name"], scope[f["name"]])
                module.__all__.append(f["name"])

        call = None

        def caller(self):
            if self.call is None:
                import base64, json, threading
                from tools import ToolError

                def plain(o):
                    if isinstance(o, (bytes, bytearray, memoryview)):
                        return {"$bytes": base64.b64encode(o).decode()}
                    raise TypeError("a tool takes JSON values and bytes, not " + type(o).__name__)

                def revive(o):
                    return base64.b64decode(o["$bytes"]) if len(o) == 1 and "$bytes" in o else o

                lock, owner = threading.Lock(), os.getpid()

                def call(number, args):
                    if os.getpid() != owner:
                        raise RuntimeError("tools can be called in the first process of a run only")
                    question = json.dumps({"f": number, "a": args}, default=plain, allow_nan=False)
                    with lock:
                        put(question.encode())
                        answer = frame()
                    value = json.loads(answer[1:], object_hook=revive)
                    if answer[:1] == b"e":
                        raise ToolError(value.get("code", ""), value.get("message", ""), value.get("fields"))
                    return value

                self.call = call
            return self.call

    sys.meta_path.insert(0, Finder())
    sys.argv = ["-c"]
    sys.path.append("/workspace")
    sys.stdin.reconfigure(errors="strict")
    sys.stdout.reconfigure(errors="strict", line_buffering=True)
    # Stacks count as memory, whether used or not.
    import _thread
    _thread.stack_size(1 << 20)
    # A module made now is one the collector sees, so that the program's own
    # objects are finalized at the end as in any interpreter.
    module = type(sys)("__main__")
    module.__loader__, module.__annotations__ = sys.modules["__main__"].__loader__, {}
    module.__builtins__ = sys.modules["builtins"]
    sys.modules["__main__"] = module
    main = module.__dict__
    del module
    name = "<main>"
    try:
        exec(compile(text, name, "exec"), main)
    except SystemExit:
        raise
    except BaseException as e:
        tb = e.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename != name:
            tb = tb.tb_next
        e.__traceback__ = tb
        if isinstance(e, MemoryError):
            put(b"memory")
        try:
            if sys.excepthook is sys.__excepthook__:
                import linecache, traceback
                linecache.cache[name] = len(text), None, text.splitlines(True), name
                traceback.print_exception(type(e), e, tb)
            else:
                sys.excepthook(type(e), e, tb)
        except BaseException:
            sys.__excepthook__(type(e), e, tb)
        raise SystemExit(1) from None


_boot()
