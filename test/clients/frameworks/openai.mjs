// A loop on the openai package of Node.
import OpenAI from 'openai'

const client = new OpenAI()
const tools = [{ type: 'function', function: { name: 'get_weather', description: 'The weather of a city.', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } }]
const messages = [{ role: 'user', content: 'How is the weather?' }]
for (;;) {
  const { message } = (await client.chat.completions.create({ model: 'gpt-test', messages, tools })).choices[0]
  messages.push(message)
  if (!message.tool_calls?.length) break
  for (const call of message.tool_calls) messages.push({ role: 'tool', tool_call_id: call.id, content: '21 degrees' })
}
