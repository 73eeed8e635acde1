# The agent of langchain, on langchain-anthropic.
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic


def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


create_agent(ChatAnthropic(model="claude-test", max_tokens=1000), [get_weather]).invoke({"messages": [("user", "How is the weather?")]}, {"recursion_limit": 1000})
