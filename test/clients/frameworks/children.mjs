// Two parts of a program, each a process with its own limits.
import OpenAI from 'openai'

for (const [part, limits] of Object.entries({ writer: 'money=0.02,steps=5', critic: 'money=0.01' })) {
  const client = new OpenAI({ defaultHeaders: { 'X-Kern-Child': part, 'X-Kern-Limits': limits } })
  const { data, response } = await client.chat.completions.create({ model: 'gpt-test', messages: [{ role: 'user', content: 'Who are you?' }] }).withResponse()
  console.log(part, 'has left:', response.headers.get('X-Kern-Left'))
  console.log(data.choices[0].message.content)
}
