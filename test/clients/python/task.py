"""What every client here does: a task, two tools, and a line of JSON for each mode.

Usage: CLIENT MODE,MODE... [FACE]. The mode is also the name of the model, so
that a provider can say something fitting. Nothing else is configured: where the
provider is and which key opens it come from the SDK's own environment
variables.
"""

import json
import os
import sys
import time

FACE = sys.argv[2] if len(sys.argv) > 2 else ""
MODEL = ""
PROMPT = os.environ.get("CLIENT_PROMPT", "Do your task.")
SYSTEM = "You are a careful assistant."
MAX = 600

SAY = os.environ.get("CLIENT_SAY", "")  # what tells this program's tools from others of the same name
DEGREES = {"Paris": 21, "Oslo": 4}
calls = []


def weather(city: str) -> str:
    """The weather in a city."""
    calls.append(["weather", {"city": city}])
    act()
    return f"{DEGREES.get(city, 15)} degrees in {city}" + SAY


def add(a: int, b: int) -> str:
    """The sum of two whole numbers."""
    calls.append(["add", {"a": a, "b": b}])
    act()
    return str(a + b)


def act():
    """Leaves a trace of the call outside, where a test asks for one."""
    trace = os.environ.get("CLIENT_TRACE")
    if trace:
        with open(trace, "a") as f:
            f.write(json.dumps(calls[-1]) + "\n")
    time.sleep(float(os.environ.get("CLIENT_TOOL_SECONDS", "0")))


TOOLS = {"weather": weather, "add": add}
SCHEMAS = {
    "weather": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
    "add": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"], "additionalProperties": False},
}
REPORT = {"type": "object", "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}}, "required": ["city", "degrees"], "additionalProperties": False}


class Usage:
    input = output = 0

    def add(self, given, wanted):
        self.input += given or 0
        self.output += wanted or 0


usage = Usage()


def tell(mode, text="", pieces=0, thoughts=0, error=None):
    line = {"mode": mode, "text": text, "calls": calls, "input": usage.input, "output": usage.output, "pieces": pieces, "thoughts": thoughts}
    if error is not None:
        line["error"] = {"type": type(error).__name__, "status": getattr(error, "status_code", None), "message": str(error)[:2000]}
    print(json.dumps(line), flush=True)


def main(modes):
    """Runs the modes, and tells of an error as agents do: a line, exit code 1."""
    global MODEL
    code = 0
    for mode in sys.argv[1].split(","):
        MODEL = os.environ.get("CLIENT_MODEL", mode)
        calls.clear()
        usage.input = usage.output = 0
        try:
            tell(mode, **modes[mode]())
        except Exception as e:  # whatever the SDK raises is what is tested
            tell(mode, error=e)
            code = 1
    sys.exit(code)
