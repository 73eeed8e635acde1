# Two parts of a program, each a process with its own limits.
from openai import OpenAI

for part, limits in {"writer": "money=0.02,steps=5", "critic": "money=0.01"}.items():
    client = OpenAI(default_headers={"X-Kern-Child": part, "X-Kern-Limits": limits})
    answer = client.chat.completions.with_raw_response.create(model="gpt-test", messages=[{"role": "user", "content": "Who are you?"}])
    print(part, "has left:", answer.headers["X-Kern-Left"])
    print(answer.parse().choices[0].message.content)
