# A crew of crewai.
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


@tool("get_weather")
def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


agent = Agent(role="observer", goal="tell the weather", backstory="looks out of the window", llm=LLM(model="openai/gpt-test"), tools=[get_weather], max_iter=1000, max_retry_limit=0)
Crew(agents=[agent], tasks=[Task(description="How is the weather?", expected_output="a sentence", agent=agent)]).kickoff()
