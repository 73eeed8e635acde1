# The ToolCallingAgent of smolagents.
from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: its name
    """
    return "21 degrees"


ToolCallingAgent(tools=[get_weather], model=OpenAIServerModel("gpt-test"), max_steps=1000).run("How is the weather?")
