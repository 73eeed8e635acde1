"""What every client here does: a task, two tools, and one line of JSON at the end.

Usage: CLIENT MODE [FACE]. The mode is also the name of the model, so that a
provider can say something fitting. Nothing else is configured: where the
provider is and which key opens it come from the SDK's own environment
variables.
"""

import json
import os
import sys
import time

MODE = sys.argv[1]
FACE = sys.argv[2] if len(sys.argv) > 2 else ""
MODEL = os.environ.get("CLIENT_MODEL", MODE)
PROMPT = os.environ.get("CLIENT_PROMPT", "Do your task.")
SYSTEM = "You are a careful assistant."
MAX = 600

DEGREES = {"Paris": 21, "Oslo": 4}
calls = []


def weather(city: str) -> str:
    """The weather in a city."""
    calls.append(["weather", {"city": city}])
    act()
    return f"{DEGREES.get(city, 15)} degrees in {city}"


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


def finish(text="", pieces=0, thoughts=0, error=None):
    line = {"text": text, "calls": calls, "input": usage.input, "output": usage.output, "pieces": pieces, "thoughts": thoughts}
    if error is not None:
        line["error"] = {"type": type(error).__name__, "status": getattr(error, "status_code", None), "message": str(error)[:2000]}
    print(json.dumps(line), flush=True)
    sys.exit(0 if error is None else 1)


def main(modes):
    """Runs the mode, and tells of an error as agents do: a line, exit code 1."""
    run = modes.get(MODE.split("-")[0])
    if run is None:
        sys.exit(f"mode {MODE}, expected one of {', '.join(modes)}")
    try:
        result = run()
    except Exception as e:  # whatever the SDK raises is what is tested
        finish(error=e)
    finish(**result)
