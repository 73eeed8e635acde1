// An agent on the official Anthropic SDK.
import Anthropic from '@anthropic-ai/sdk'
import * as task from './task.mjs'

const client = new Anthropic()
const max = 3000 // a budget for thinking is at least 1024
const toolList = Object.keys(task.tools).map((name) => ({ name, description: task.about[name], input_schema: task.schemas[name] }))
const start = () => [{ role: 'user', content: task.prompt }]
const textOf = (r) => r.content.filter((b) => b.type === 'text').map((b) => b.text).join('')

function book(r) {
  task.book(r.usage.input_tokens, r.usage.output_tokens)
  return r
}

async function plain() {
  return { text: textOf(book(await client.messages.create({ model: task.model, max_tokens: task.max, system: task.system, messages: start() }))) }
}

async function stream(messages, more = {}) {
  const events = client.messages.stream({
    model: task.model, max_tokens: max, messages, system: [{ type: 'text', text: task.system, cache_control: { type: 'ephemeral' } }], ...more,
  })
  let pieces = 0
  events.on('text', () => pieces++)
  return [book(await events.finalMessage()), pieces]
}

async function streamed() {
  const [r, pieces] = await stream(start())
  return { text: textOf(r), pieces }
}

async function tools() {
  const messages = start()
  for (let pieces = 0, thoughts = 0; ;) {
    const [r, n] = await stream(messages, { tools: toolList, thinking: { type: 'enabled', budget_tokens: 1024 } })
    pieces += n
    thoughts += r.content.filter((b) => b.type === 'thinking').length
    messages.push({ role: 'assistant', content: r.content })
    const results = []
    for (const b of r.content.filter((b) => b.type === 'tool_use')) {
      results.push({ type: 'tool_result', tool_use_id: b.id, content: await task.tools[b.name](b.input) })
    }
    if (!results.length) return { text: textOf(r), pieces, thoughts }
    messages.push({ role: 'user', content: results })
  }
}

async function structured() {
  const r = book(await client.messages.create({
    model: task.model, max_tokens: task.max, system: task.system, messages: start(), output_config: { format: { type: 'json_schema', schema: task.report } },
  }))
  const { city, degrees } = JSON.parse(textOf(r))
  return { text: `${city} ${degrees}` }
}

async function count() {
  const r = await client.messages.countTokens({ model: task.model, system: task.system, messages: start() })
  return { text: String(r.input_tokens) }
}

await task.main({ plain, stream: streamed, tools, structured, error: plain, long: tools, count })
