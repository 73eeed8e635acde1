# Typed answers of instructor.
import instructor
from openai import OpenAI
from pydantic import BaseModel


class Weather(BaseModel):
    city: str


client = instructor.from_openai(OpenAI())
for _ in range(1000):
    client.chat.completions.create(model="gpt-test", response_model=Weather, messages=[{"role": "user", "content": "How is the weather?"}])
