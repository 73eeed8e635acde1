# strands-agents, on its model of OpenAI.
from strands import Agent, tool
from strands.models.openai import OpenAIModel


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


Agent(model=OpenAIModel(model_id="gpt-test"), tools=[get_weather])("How is the weather?")
