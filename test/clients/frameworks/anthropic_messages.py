# A loop on the anthropic package.
import anthropic

tool = {"name": "get_weather", "description": "The weather of a city.", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
messages = [{"role": "user", "content": "How is the weather?"}]
while True:
    answer = anthropic.Anthropic().messages.create(model="claude-test", max_tokens=1000, messages=messages, tools=[tool])
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})
    results = [{"type": "tool_result", "tool_use_id": block.id, "content": "21 degrees"} for block in answer.content if block.type == "tool_use"]
    if not results:
        break
    messages.append({"role": "user", "content": results})
