# pydantic-ai, with the model that is named.
import sys
from pydantic_ai import Agent
from pydantic_ai.usage import UsageLimits

agent = Agent(sys.argv[1])


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


agent.run_sync("How is the weather?", usage_limits=UsageLimits(request_limit=None))
