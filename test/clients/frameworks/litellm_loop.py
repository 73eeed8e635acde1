# A loop on litellm, with the model that is named.
import sys
import litellm

tool = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
messages = [{"role": "user", "content": "How is the weather?"}]
while True:
    answer = litellm.completion(model=sys.argv[1], messages=messages, tools=[tool], max_tokens=1000).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "21 degrees"})
