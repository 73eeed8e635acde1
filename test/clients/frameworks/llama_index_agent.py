# The FunctionAgent of llama-index.
import asyncio
import os
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike


def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


async def main():
    model = OpenAILike(model="gpt-test", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"], is_chat_model=True, is_function_calling_model=True)
    await FunctionAgent(tools=[get_weather], llm=model).run("How is the weather?", max_iterations=1000)


asyncio.run(main())
