"""An agent on the OpenAI Agents SDK, which speaks responses unless told otherwise."""

import asyncio

import agents
import task
from pydantic import BaseModel

agents.set_tracing_disabled(True)
loop = asyncio.new_event_loop()  # one for all modes: the SDK keeps its connections
if task.FACE == "chat":
    agents.set_default_openai_api("chat_completions")


class Report(BaseModel):
    city: str
    degrees: int


def agent(**more):
    settings = agents.ModelSettings(max_tokens=task.MAX, include_usage=True)
    return agents.Agent(name="helper", instructions=task.SYSTEM, model=task.MODEL, model_settings=settings, **more)


def book(result):
    u = result.context_wrapper.usage
    task.usage.add(u.input_tokens, u.output_tokens)
    return result


def run(a):
    return book(loop.run_until_complete(agents.Runner.run(a, task.PROMPT)))


def plain():
    return {"text": run(agent()).final_output}


async def run_streamed(a):
    pieces = 0
    result = agents.Runner.run_streamed(a, task.PROMPT, max_turns=100)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            pieces += 1
    return {"text": book(result).final_output, "pieces": pieces}


def streamed():
    return loop.run_until_complete(run_streamed(agent()))


def tools():
    tool = agents.function_tool
    return loop.run_until_complete(run_streamed(agent(tools=[tool(task.weather), tool(task.add)])))


def structured():
    report = run(agent(output_type=Report)).final_output
    return {"text": f"{report.city} {report.degrees}"}


task.main({"plain": plain, "stream": streamed, "tools": tools, "structured": structured, "error": plain, "long": tools})
