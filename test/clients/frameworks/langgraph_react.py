# The ready-made agent of langgraph, on langchain-openai.
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


create_react_agent(ChatOpenAI(model="gpt-test"), [get_weather]).invoke({"messages": [("user", "How is the weather?")]}, {"recursion_limit": 1000})
