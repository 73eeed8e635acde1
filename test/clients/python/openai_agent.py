"""An agent on the official OpenAI SDK: chat completions, or responses."""

import json

import openai
import task

client = openai.OpenAI()


def chat_tools():
    return [{"type": "function", "function": {"name": n, "description": f.__doc__, "parameters": task.SCHEMAS[n]}} for n, f in task.TOOLS.items()]


def start():
    return [{"role": "system", "content": task.SYSTEM}, {"role": "user", "content": task.PROMPT}]


def plain():
    r = client.chat.completions.create(model=task.MODEL, messages=start(), max_completion_tokens=task.MAX)
    task.usage.add(r.usage.prompt_tokens, r.usage.completion_tokens)
    return {"text": r.choices[0].message.content}


def stream(messages=None, tools=None):
    """One streamed answer, as its message, and the number of its pieces."""
    text, pieces, calls = "", 0, {}
    more = {"tools": tools} if tools else {}
    for chunk in client.chat.completions.create(
        model=task.MODEL, messages=messages or start(), stream=True, stream_options={"include_usage": True}, max_completion_tokens=task.MAX, **more
    ):
        if chunk.usage:
            task.usage.add(chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        for choice in chunk.choices:
            if choice.delta.content:
                text, pieces = text + choice.delta.content, pieces + 1
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                call["id"] += part.id or ""
                call["function"]["name"] += part.function.name or ""
                call["function"]["arguments"] += part.function.arguments or ""
    message = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [calls[i] for i in sorted(calls)]
    return message, pieces


def streamed():
    message, pieces = stream()
    return {"text": message["content"], "pieces": pieces}


def tools():
    messages, pieces = start(), 0
    while True:
        message, n = stream(messages, chat_tools())
        messages.append(message)
        pieces += n
        if not message.get("tool_calls"):
            return {"text": message["content"] or "", "pieces": pieces}
        for call in message["tool_calls"]:
            f = call["function"]
            result = task.TOOLS[f["name"]](**json.loads(f["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def structured():
    r = client.chat.completions.create(
        model=task.MODEL, messages=start(), max_completion_tokens=task.MAX,
        response_format={"type": "json_schema", "json_schema": {"name": "report", "strict": True, "schema": task.REPORT}},
    )
    task.usage.add(r.usage.prompt_tokens, r.usage.completion_tokens)
    report = json.loads(r.choices[0].message.content)
    return {"text": f"{report['city']} {report['degrees']}"}


def embed():
    r = client.embeddings.create(model=task.MODEL, input=["one", "one two"], dimensions=8)
    task.usage.add(r.usage.prompt_tokens, 0)
    return {"text": " ".join(str(len(d.embedding)) for d in r.data)}


def response_tools():
    return [{"type": "function", "name": n, "description": f.__doc__, "parameters": task.SCHEMAS[n], "strict": True} for n, f in task.TOOLS.items()]


def response(items, **more):
    r = client.responses.create(model=task.MODEL, instructions=task.SYSTEM, input=items, max_output_tokens=task.MAX, **more)
    task.usage.add(r.usage.input_tokens, r.usage.output_tokens)
    return r


def response_stream(items, **more):
    pieces = 0
    with client.responses.stream(model=task.MODEL, instructions=task.SYSTEM, input=items, max_output_tokens=task.MAX, **more) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                pieces += 1
        r = events.get_final_response()
    task.usage.add(r.usage.input_tokens, r.usage.output_tokens)
    return r, pieces


def response_streamed():
    r, pieces = response_stream(task.PROMPT)
    return {"text": r.output_text, "pieces": pieces}


def response_loop():
    items, pieces = [{"role": "user", "content": task.PROMPT}], 0
    while True:
        r, n = response_stream(items, tools=response_tools())
        pieces += n
        calls = [o for o in r.output if o.type == "function_call"]
        if not calls:
            return {"text": r.output_text, "pieces": pieces}
        items += [
            {"type": "function_call", "call_id": o.call_id, "name": o.name, "arguments": o.arguments}
            if o.type == "function_call" else {"role": "assistant", "content": "".join(c.text for c in o.content)}
            for o in r.output if o.type in ("function_call", "message")
        ]
        for c in calls:
            items.append({"type": "function_call_output", "call_id": c.call_id, "output": task.TOOLS[c.name](**json.loads(c.arguments))})


def response_structured():
    r = response(task.PROMPT, text={"format": {"type": "json_schema", "name": "report", "strict": True, "schema": task.REPORT}})
    report = json.loads(r.output_text)
    return {"text": f"{report['city']} {report['degrees']}"}


chat = {"plain": plain, "stream": streamed, "tools": tools, "structured": structured, "error": plain, "long": tools, "embed": embed}
responses = {
    "plain": lambda: {"text": response(task.PROMPT).output_text}, "stream": response_streamed, "tools": response_loop,
    "structured": response_structured, "error": lambda: {"text": response(task.PROMPT).output_text}, "long": response_loop,
}
task.main(responses if task.FACE == "responses" else chat)
