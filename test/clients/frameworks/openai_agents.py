# openai-agents.
from agents import Agent, Runner, function_tool


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


Runner.run_sync(Agent(name="weather", model="gpt-test", tools=[get_weather]), "How is the weather?", max_turns=1000)
