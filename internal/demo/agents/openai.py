from openai import OpenAI

client = OpenAI()
tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}}}}]
messages = [{"role": "user", "content": "Find everything about everything."}]
while True:
    reply = client.chat.completions.create(model="gpt-6-luna", messages=messages, tools=tools).choices[0].message
    messages.append(reply)
    if not reply.tool_calls:
        print(reply.content)
        break
    for call in reply.tool_calls:
        print("search", call.function.arguments, flush=True)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "a page that names two others"})
