# The Agent of haystack.
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


agent = Agent(chat_generator=OpenAIChatGenerator(model="gpt-test"), tools=[get_weather], max_agent_steps=1000)
agent.run(messages=[ChatMessage.from_user("How is the weather?")])
