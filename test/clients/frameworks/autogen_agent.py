# The AssistantAgent of autogen.
import asyncio
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


async def main():
    info = {"vision": False, "function_calling": True, "json_output": False, "family": "unknown", "structured_output": False}
    model = OpenAIChatCompletionClient(model="gpt-test", model_info=info)
    agent = AssistantAgent("weather", model, tools=[get_weather], max_tool_iterations=1000)
    await agent.run(task="How is the weather?")


asyncio.run(main())
