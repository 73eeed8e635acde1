# Microsoft's agent-framework.
import asyncio
from agent_framework import Agent
from agent_framework.openai import OpenAIChatClient


def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


async def main():
    agent = Agent(OpenAIChatClient(model="gpt-test"), "You tell the weather.", tools=[get_weather])
    while True:  # a run ends after a number of rounds of its own
        await agent.run("How is the weather?")


asyncio.run(main())
