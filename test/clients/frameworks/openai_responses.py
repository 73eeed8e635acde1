# A loop on the Responses format of the openai package, which keeps the conversation at the provider.
from openai import OpenAI

tool = {"type": "function", "name": "get_weather", "description": "The weather of a city.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}, "strict": True}
answer = OpenAI().responses.create(model="gpt-test", input="How is the weather?", tools=[tool])
while calls := [item for item in answer.output if item.type == "function_call"]:
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"} for call in calls]
    answer = OpenAI().responses.create(model="gpt-test", input=results, tools=[tool], previous_response_id=answer.id)
