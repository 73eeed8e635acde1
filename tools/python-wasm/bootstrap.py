# Runs once inside the interpreter, as a module of its own, when the image is
# made; what it leaves in memory is what every instance starts from.
import _kern
import asyncio
import asyncio.base_events
import base64
import builtins
import concurrent.futures
import concurrent.futures.thread
import importlib.abc
import importlib.machinery
import hashlib
import hmac
import json
import json.encoder
import json.scanner
import linecache
import logging
import os
import random
import selectors
import site
import sys
import time
import types

DESCRIBE, ENVIRONMENT = -1, -2
FLAG_ENV, FLAG_KEEP = 1, 2


# ---- tools: functions of the host ----

class ToolError(Exception):
    """A tool failed; what it said is in code, message and fields."""

    def __init__(self, code, message="", fields=None):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.fields = code, message, fields or {}


ToolError.__module__ = "tools"


def make_error(text):
    e = json.loads(text)
    return ToolError(e.get("code", ""), e.get("message", ""), e.get("fields"))


def default(o):
    if isinstance(o, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(o).decode()}
    raise TypeError(f"a tool takes JSON values and bytes, not {type(o).__name__}")


def revive(o):
    if len(o) == 1 and "$bytes" in o:
        return base64.b64decode(o["$bytes"])
    return o


encode_string = json.encoder.encode_basestring_ascii
encode_fast = json.encoder.c_make_encoder(None, default, encode_string, None, ":", ",", False, False, False)
encode_careful = json.JSONEncoder(allow_nan=False, default=default, separators=(",", ":")).encode
scan = json.scanner.c_make_scanner(json.JSONDecoder())
scan_bytes = json.JSONDecoder(object_hook=revive).decode


def call(op, args):
    try:
        payload = "".join(encode_fast(args, 0))
    except RecursionError:
        payload = encode_careful(args)
    reply = _kern.call(op, payload)
    if '"$bytes"' in reply:
        return scan_bytes(reply)
    return scan(reply, 0)[0]


def source(number, f):
    """The text of one function, typed as its tool declares."""
    params, given, later = [], [], []
    for p in f["params"]:
        name = p["name"]
        text = name + (": " + p["type"] if p["type"] else "")
        if p.get("optional"):
            params.append(text + " = ..." if p["type"] else text + "=...")
            later.append(f"    if {name} is not ...: __args[{name!r}] = {name}\n")
        else:
            params.append(text)
            given.append(f"{name!r}: {name}")
    head = f"def {f['name']}({', '.join(params)}):\n    {f['doc']!r}\n"
    if not later:
        return head + f"    return __call({number}, {{{', '.join(given)}}})\n"
    return head + f"    __args = {{{', '.join(given)}}}\n" + "".join(later) + f"    return __call({number}, __args)\n"


class Tools(importlib.abc.Loader):
    """Finds the package tools and its namespaces by asking the host."""

    def describe(self):
        return json.loads(_kern.call(DESCRIBE, ""))

    def find_spec(self, name, path=None, target=None):
        if name == "tools":
            return importlib.machinery.ModuleSpec(name, self, origin="kern", is_package=True)
        package, _, space = name.partition(".")
        if package == "tools" and any(f["namespace"] == space for f in self.describe()):
            return importlib.machinery.ModuleSpec(name, self, origin="kern")
        return None

    def invalidate_caches(self):
        pass

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__ == "tools":
            module.ToolError = ToolError
            names = sorted({f["namespace"] for f in self.describe()})
            module.__all__ = ["ToolError", *names]

            def __getattr__(name):
                if name in names:
                    return importlib.import_module("tools." + name)
                raise AttributeError(f"module 'tools' has no attribute {name!r}")

            module.__getattr__ = __getattr__
            return
        space = module.__name__.partition(".")[2]
        scope = {"__call": call, "__name__": module.__name__}
        module.__all__ = []
        for number, f in enumerate(self.describe()):
            if f["namespace"] == space:
                exec(source(number, f), scope)
                setattr(module, f["name"], scope[f["name"]])
                module.__all__.append(f["name"])


# ---- what a system without threads and sockets needs to look whole ----

class Inline(concurrent.futures.Executor):
    """Runs each task when it is submitted: there is one thread, and no other."""

    def __init__(self, max_workers=None, thread_name_prefix="", initializer=None, initargs=()):
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        self._max_workers = max_workers or 1
        self._closed = False
        if initializer is not None:
            initializer(*initargs)

    def submit(self, fn, /, *args, **kwargs):
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        try:
            result = fn(*args, **kwargs)
        except Exception as e:
            future.set_exception(e)
        else:
            future.set_result(result)
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        self._closed = True


Inline.__name__ = Inline.__qualname__ = "ThreadPoolExecutor"
Inline.__module__ = "concurrent.futures.thread"
concurrent.futures.thread.ThreadPoolExecutor = Inline
concurrent.futures.ThreadPoolExecutor = Inline


class Waiter(selectors._BaseSelectorImpl):
    def select(self, timeout=None):
        if timeout is None:
            raise RuntimeError("asyncio: every task waits for another and nothing can wake them")
        if timeout > 0:
            time.sleep(timeout)
        return []


class Loop(asyncio.base_events.BaseEventLoop):
    def __init__(self):
        super().__init__()
        self._selector = Waiter()
        self._clock_resolution = 1e-6

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass

    async def shutdown_default_executor(self, timeout=None):
        self._executor_shutdown_called = True
        if self._default_executor is not None:
            self._default_executor.shutdown()


class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Loop


def pbkdf2_hmac(hash_name, password, salt, iterations, dklen=None):
    """PBKDF2 of RFC 8018; hashlib has it from OpenSSL, which is not here."""
    if iterations < 1 or dklen is not None and dklen < 1:
        raise ValueError("iterations and dklen must be greater than 0")
    start = hmac.new(password, None, hash_name)
    size = start.digest_size
    dklen = size if dklen is None else dklen
    out = b""
    for block in range(1, -(-dklen // size) + 1):
        h = start.copy()
        h.update(bytes(salt) + block.to_bytes(4, "big"))
        u = h.digest()
        total = int.from_bytes(u, "big")
        for _ in range(iterations - 1):
            h = start.copy()
            h.update(u)
            u = h.digest()
            total ^= int.from_bytes(u, "big")
        out += total.to_bytes(size, "big")
    return out[:dklen]


pbkdf2_hmac.__module__ = "hashlib"
hashlib.pbkdf2_hmac = pbkdf2_hmac


# ---- the two ends of a run ----

runs = 0


def begin(text, flags):
    global runs
    runs += 1
    if runs == 1:
        random.seed()
        logging._startTime = time.time_ns()
    if flags & FLAG_ENV:
        os.environ.clear()
        os.environ.update(json.loads(_kern.call(ENVIRONMENT, "")))
    name = "<main>" if runs == 1 else f"<main {runs}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    return name


def finish(flags):
    import atexit
    atexit._run_exitfuncs()


_kern.hooks(make_error, begin, finish)
sys.meta_path.insert(0, Tools())
site.setquit()
site.setcopyright()
site.sethelper()
sys.argv = ["-c"]
sys.path.append("/workspace")
os.chdir("/workspace")
sys.stdout.reconfigure(line_buffering=True)
sys.stdin.reconfigure(errors="strict")
asyncio.set_event_loop_policy(Policy())


async def settle():
    await asyncio.sleep(0)


asyncio.run(settle())
asyncio.set_event_loop(None)


# What generated code commonly imports is in the image already. The rest of the
# library is read, compiled, from the read-only tree when it is asked for.
preload = """
abc argparse array ast asyncio atexit base64 binascii bisect builtins calendar cmath codecs collections
collections.abc colorsys concurrent.futures configparser contextlib contextvars copy copyreg csv dataclasses datetime decimal
difflib dis email email.message email.mime.text email.policy encodings.ascii encodings.idna encodings.latin_1 encodings.punycode
encodings.raw_unicode_escape encodings.unicode_escape encodings.utf_16 encodings.utf_8_sig encodings.cp1252 encodings.hex_codec
encodings.base64_codec encodings.rot_13 enum errno fnmatch fractions functools gc getopt
gettext glob graphlib gzip hashlib heapq hmac html html.entities html.parser http http.client importlib importlib.metadata
importlib.resources importlib.util inspect io ipaddress itertools json keyword linecache locale logging logging.config
logging.handlers marshal math mimetypes numbers opcode operator optparse os pathlib pickle platform pprint
queue quopri random re reprlib sched secrets select selectors shlex shutil signal socket sre_compile stat
statistics string stringprep struct subprocess symtable sys sysconfig tarfile tempfile textwrap threading time timeit token
tokenize tomllib traceback tracemalloc types typing unicodedata unittest unittest.mock urllib urllib.error urllib.parse urllib.request
uuid warnings weakref xml.dom.minidom xml.etree.ElementTree xml.sax xml.sax.saxutils zipfile zipimport zlib zoneinfo
""".split()
for module in preload:
    importlib.import_module(module)

# The interpreter writes into code that it runs the first times, and so makes
# the pages around it an instance's own. What each run goes through has run
# before the image is taken; the host answers this with one function, warm.f.
def warm():
    global runs
    import contextlib
    import io
    scope = {"__name__": "warm", "__builtins__": builtins}
    for i in range(24):
        begin("pass\n", 0)
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile("""
import tools, json, re
from tools.warm import f
class C:
    def __init__(self, x): self.x = x
def g(n): return [C(i).x for i in range(n)]
try:
    print(f(1), json.dumps({"a": g(3)}), f"{len(re.sub('a', 'b', 'abc')):>5}", *sorted("ba"), sep=",")
    raise ValueError(1)
except ValueError as e: print(e)
""", "<warm>", "exec"), scope)
        finish(0)
        for name in "tools.warm", "tools":
            del sys.modules[name]
        runs = 0
    linecache.cache.clear()
    re.purge()


import re

warm()

# What was read here is not there for the runs.
sys.path_importer_cache.clear()

# Everything so far is there for good, so the collector need not walk it; and
# the heap has room, so that a short program does not grow the memory.
import gc

room = [bytearray(1 << 20) for _ in range(4)]
del room, module, preload, warm
gc.collect()
gc.freeze()
