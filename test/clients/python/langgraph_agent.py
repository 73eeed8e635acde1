"""An agent on LangGraph, with LangChain's model of OpenAI."""

import warnings

import task
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

warnings.simplefilter("ignore")  # of names that move between the two packages
START = [("system", task.SYSTEM), ("user", task.PROMPT)]


def model():
    return ChatOpenAI(model=task.MODEL, max_completion_tokens=task.MAX, stream_usage=True)


def book(message):
    u = message.usage_metadata or {}
    task.usage.add(u.get("input_tokens"), u.get("output_tokens"))
    return message


def plain():
    return {"text": book(model().invoke(START)).content}


def streamed():
    pieces, whole = 0, None
    for chunk in model().stream(START):
        pieces += bool(chunk.content)
        whole = chunk if whole is None else whole + chunk
    return {"text": book(whole).content, "pieces": pieces}


def tools():
    agent = create_react_agent(model(), [tool(task.weather), tool(task.add)])
    pieces, last = 0, None
    for kind, part in agent.stream({"messages": START}, {"recursion_limit": 200}, stream_mode=["messages", "values"]):
        if kind == "messages":
            pieces += bool(part[0].content) and part[0].type == "AIMessageChunk"
        else:
            last = part
    for message in last["messages"]:
        if message.type == "ai":
            book(message)
    return {"text": last["messages"][-1].content, "pieces": pieces}


def structured():
    r = model().with_structured_output({"title": "report", "description": "A report.", **task.REPORT}, method="json_schema", include_raw=True).invoke(START)
    book(r["raw"])
    return {"text": f"{r['parsed']['city']} {r['parsed']['degrees']}"}


task.main({"plain": plain, "stream": streamed, "tools": tools, "structured": structured, "error": plain, "long": tools})
