// An agent on the official OpenAI SDK: chat completions, or responses.
import OpenAI from 'openai'
import * as task from './task.mjs'

const client = new OpenAI()
const start = () => [{ role: 'system', content: task.system }, { role: 'user', content: task.prompt }]
const chatTools = Object.keys(task.tools).map((name) => ({ type: 'function', function: { name, description: task.about[name], parameters: task.schemas[name] } }))

async function plain() {
  const r = await client.chat.completions.create({ model: task.model, messages: start(), max_completion_tokens: task.max })
  task.book(r.usage.prompt_tokens, r.usage.completion_tokens)
  return { text: r.choices[0].message.content }
}

// stream is one streamed answer, as its message, and the number of its pieces.
async function stream(messages, more = {}) {
  const events = client.chat.completions.stream({
    model: task.model, messages, stream_options: { include_usage: true }, max_completion_tokens: task.max, ...more,
  })
  let pieces = 0
  events.on('content', () => pieces++)
  const r = await events.finalChatCompletion()
  task.book(r.usage.prompt_tokens, r.usage.completion_tokens)
  return [r.choices[0].message, pieces]
}

async function streamed() {
  const [message, pieces] = await stream(start())
  return { text: message.content, pieces }
}

async function tools() {
  const messages = start()
  for (let pieces = 0; ;) {
    const [message, n] = await stream(messages, { tools: chatTools })
    pieces += n
    messages.push(message)
    if (!message.tool_calls?.length) return { text: message.content ?? '', pieces }
    for (const { id, function: f } of message.tool_calls) {
      messages.push({ role: 'tool', tool_call_id: id, content: await task.tools[f.name](JSON.parse(f.arguments)) })
    }
  }
}

async function structured() {
  const r = await client.chat.completions.create({
    model: task.model, messages: start(), max_completion_tokens: task.max,
    response_format: { type: 'json_schema', json_schema: { name: 'report', strict: true, schema: task.report } },
  })
  task.book(r.usage.prompt_tokens, r.usage.completion_tokens)
  const { city, degrees } = JSON.parse(r.choices[0].message.content)
  return { text: `${city} ${degrees}` }
}

async function embed() {
  const r = await client.embeddings.create({ model: task.model, input: ['one', 'one two'], dimensions: 8 })
  task.book(r.usage.prompt_tokens, 0)
  return { text: r.data.map((d) => d.embedding.length).join(' ') }
}

const asked = (input, more) => ({ model: task.model, instructions: task.system, input, max_output_tokens: task.max, ...more })
const responseTools = Object.keys(task.tools).map((name) => ({ type: 'function', name, description: task.about[name], parameters: task.schemas[name], strict: true }))

async function response(input, more) {
  const r = await client.responses.create(asked(input, more))
  task.book(r.usage.input_tokens, r.usage.output_tokens)
  return r
}

async function responseStream(input, more) {
  const events = client.responses.stream(asked(input, more))
  let pieces = 0
  events.on('response.output_text.delta', () => pieces++)
  const r = await events.finalResponse()
  task.book(r.usage.input_tokens, r.usage.output_tokens)
  return [r, pieces]
}

async function responseStreamed() {
  const [r, pieces] = await responseStream(task.prompt)
  return { text: r.output_text, pieces }
}

async function responseLoop() {
  const items = [{ role: 'user', content: task.prompt }]
  for (let pieces = 0; ;) {
    const [r, n] = await responseStream(items, { tools: responseTools })
    pieces += n
    const calls = r.output.filter((o) => o.type === 'function_call')
    if (!calls.length) return { text: r.output_text, pieces }
    for (const o of r.output) {
      if (o.type === 'function_call') items.push({ type: o.type, call_id: o.call_id, name: o.name, arguments: o.arguments })
      if (o.type === 'message') items.push({ role: 'assistant', content: o.content.map((c) => c.text).join('') })
    }
    for (const c of calls) {
      items.push({ type: 'function_call_output', call_id: c.call_id, output: await task.tools[c.name](JSON.parse(c.arguments)) })
    }
  }
}

async function responseStructured() {
  const r = await response(task.prompt, { text: { format: { type: 'json_schema', name: 'report', strict: true, schema: task.report } } })
  const { city, degrees } = JSON.parse(r.output_text)
  return { text: `${city} ${degrees}` }
}

const responsePlain = async () => ({ text: (await response(task.prompt)).output_text })
await task.main(task.face === 'responses'
  ? { plain: responsePlain, stream: responseStreamed, tools: responseLoop, structured: responseStructured, error: responsePlain, long: responseLoop }
  : { plain, stream: streamed, tools, structured, error: plain, long: tools, embed })
