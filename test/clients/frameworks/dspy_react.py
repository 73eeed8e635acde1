# ReAct of DSPy.
import dspy

dspy.configure(lm=dspy.LM("openai/gpt-test", cache=False, max_tokens=1000))


def get_weather(city: str) -> str:
    """The weather of a city."""
    return "21 degrees"


dspy.ReAct("question -> answer", tools=[get_weather], max_iters=1000)(question="How is the weather?")
