# The CodeAgent of smolagents, which answers with programs.
from smolagents import CodeAgent, OpenAIServerModel

CodeAgent(tools=[], model=OpenAIServerModel("gpt-test"), max_steps=1000).run("How is the weather?")
