// A loop on Anthropic's package of Node.
import Anthropic from '@anthropic-ai/sdk'

const client = new Anthropic()
const tools = [{ name: 'get_weather', description: 'The weather of a city.', input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } }]
const messages = [{ role: 'user', content: 'How is the weather?' }]
for (;;) {
  const { content } = await client.messages.create({ model: 'claude-test', max_tokens: 1000, messages, tools })
  messages.push({ role: 'assistant', content })
  const results = content.filter((b) => b.type === 'tool_use').map((b) => ({ type: 'tool_result', tool_use_id: b.id, content: '21 degrees' }))
  if (!results.length) break
  messages.push({ role: 'user', content: results })
}
