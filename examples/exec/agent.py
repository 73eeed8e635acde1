"""An agent that knows nothing of Kern, with the standard library alone.

    kern exec --money 0.10 --steps 5 -- python3 examples/exec/agent.py "your task"
"""
import json
import os
import sys
import urllib.error
import urllib.request

BASE = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
KEY = os.environ["OPENAI_API_KEY"]
MODEL = os.environ.get("MODEL", "gpt-6-luna")
TOOLS = [{"type": "function", "function": {
    "name": "look", "description": "List the files of a directory.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}}]


def ask(messages):
    body = json.dumps({"model": MODEL, "messages": messages, "tools": TOOLS}).encode()
    request = urllib.request.Request(BASE + "/chat/completions", body, {
        "Content-Type": "application/json", "Authorization": "Bearer " + KEY})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as refused:
        sys.exit(f"the model cannot be asked: {refused.code} {refused.read().decode()}")


def look(path):
    try:
        return "\n".join(sorted(os.listdir(path))) or "nothing"
    except OSError as why:
        return str(why)


messages = [{"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "What is in this directory?"}]
while True:
    reply = ask(messages)
    messages.append(reply)
    if not reply.get("tool_calls"):
        print(reply["content"])
        break
    for call in reply["tool_calls"]:
        print("look", call["function"]["arguments"], flush=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": look(**json.loads(call["function"]["arguments"]))})
