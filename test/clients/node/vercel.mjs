// An agent on the AI SDK of Vercel: its providers for OpenAI (responses, or
// chat) and Anthropic.
import { anthropic } from '@ai-sdk/anthropic'
import { openai } from '@ai-sdk/openai'
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai'
import * as task from './task.mjs'

const { face } = task
const model = () => face === 'anthropic' ? anthropic(task.model) : face === 'chat' ? openai.chat(task.model) : openai(task.model)
const ask = () => ({ model: model(), system: task.system, prompt: task.prompt, maxOutputTokens: task.max })

function book(usage) {
  task.book(usage.inputTokens, usage.outputTokens)
}

async function plain() {
  const r = await generateText(ask())
  book(r.totalUsage)
  return { text: r.text }
}

async function stream(more = {}) {
  let error
  const r = streamText({ ...ask(), ...more, onError: (e) => { error = e.error } })
  let pieces = 0
  for await (const part of r.fullStream) {
    if (part.type === 'text-delta') pieces++
  }
  if (error) throw error
  book(await r.totalUsage)
  return { text: await r.text, pieces }
}

function tools() {
  const all = {}
  for (const name of Object.keys(task.tools)) {
    all[name] = tool({ description: task.about[name], inputSchema: jsonSchema(task.schemas[name]), execute: task.tools[name] })
  }
  return stream({ tools: all, stopWhen: stepCountIs(100) })
}

async function structured() {
  const r = await generateObject({ ...ask(), schema: jsonSchema(task.report) })
  book(r.usage)
  return { text: `${r.object.city} ${r.object.degrees}` }
}

await task.main({ plain, stream: () => stream(), tools, structured, error: plain, long: tools })
