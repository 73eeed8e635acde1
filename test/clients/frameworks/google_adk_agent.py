# google-adk, on its LiteLlm.
import asyncio
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types


def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


async def main():
    runner = InMemoryRunner(LlmAgent(name="weather", model=LiteLlm("openai/gpt-test"), tools=[get_weather]), app_name="weather")
    session = await runner.session_service.create_session(app_name="weather", user_id="u")
    question = types.Content(role="user", parts=[types.Part(text="How is the weather?")])
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=question):
        pass


asyncio.run(main())
