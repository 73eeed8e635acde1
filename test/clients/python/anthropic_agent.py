"""An agent on the official Anthropic SDK."""

import json

import anthropic
import task

client = anthropic.Anthropic()
MAX = 3000  # a budget for thinking is at least 1024


def tool_list():
    return [{"name": n, "description": f.__doc__, "input_schema": task.SCHEMAS[n]} for n, f in task.TOOLS.items()]


def book(r):
    task.usage.add(r.usage.input_tokens, r.usage.output_tokens)
    return r


def text_of(r):
    return "".join(b.text for b in r.content if b.type == "text")


def start():
    return [{"role": "user", "content": task.PROMPT}]


def plain():
    return {"text": text_of(book(client.messages.create(model=task.MODEL, max_tokens=task.MAX, system=task.SYSTEM, messages=start())))}


def stream(messages, **more):
    pieces = 0
    with client.messages.stream(
        model=task.MODEL, max_tokens=MAX, messages=messages,
        system=[{"type": "text", "text": task.SYSTEM, "cache_control": {"type": "ephemeral"}}], **more,
    ) as events:
        for event in events:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                pieces += 1
        r = events.get_final_message()
    return book(r), pieces


def streamed():
    r, pieces = stream(start())
    return {"text": text_of(r), "pieces": pieces}


def tools():
    messages, pieces, thoughts = start(), 0, 0
    while True:
        r, n = stream(messages, tools=tool_list(), thinking={"type": "enabled", "budget_tokens": 1024})
        pieces += n
        thoughts += sum(b.type == "thinking" for b in r.content)
        messages.append({"role": "assistant", "content": r.content})
        results = [
            {"type": "tool_result", "tool_use_id": b.id, "content": task.TOOLS[b.name](**b.input)}
            for b in r.content if b.type == "tool_use"
        ]
        if not results:
            return {"text": text_of(r), "pieces": pieces, "thoughts": thoughts}
        messages.append({"role": "user", "content": results})


def structured():
    r = book(client.messages.create(
        model=task.MODEL, max_tokens=task.MAX, system=task.SYSTEM, messages=start(),
        output_config={"format": {"type": "json_schema", "schema": task.REPORT}},
    ))
    report = json.loads(text_of(r))
    return {"text": f"{report['city']} {report['degrees']}"}


def count():
    r = client.messages.count_tokens(model=task.MODEL, system=task.SYSTEM, messages=start())
    return {"text": str(r.input_tokens)}


task.main({"plain": plain, "stream": streamed, "tools": tools, "structured": structured, "error": plain, "long": tools, "count": count})
