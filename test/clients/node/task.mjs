// What every client here does: a task, two tools, and a line of JSON for each
// mode. Usage: CLIENT MODE,MODE... [FACE]; see ../python/task.py.
import { appendFileSync } from 'node:fs'

export const face = process.argv[3] ?? ''
export let model = ''
export const prompt = process.env.CLIENT_PROMPT ?? 'Do your task.'
export const system = 'You are a careful assistant.'
export const max = 600

const degrees = { Paris: 21, Oslo: 4 }
const calls = []

async function act(call) {
  calls.push(call)
  if (process.env.CLIENT_TRACE) appendFileSync(process.env.CLIENT_TRACE, JSON.stringify(call) + '\n')
  await new Promise((go) => setTimeout(go, 1000 * Number(process.env.CLIENT_TOOL_SECONDS ?? 0)))
}

export const tools = {
  weather: async ({ city }) => {
    await act(['weather', { city }])
    return `${degrees[city] ?? 15} degrees in ${city}${process.env.CLIENT_SAY ?? ''}`
  },
  add: async ({ a, b }) => {
    await act(['add', { a, b }])
    return String(a + b)
  },
}
export const about = { weather: 'The weather in a city.', add: 'The sum of two whole numbers.' }
export const schemas = {
  weather: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false },
  add: { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } }, required: ['a', 'b'], additionalProperties: false },
}
export const report = {
  type: 'object', properties: { city: { type: 'string' }, degrees: { type: 'integer' } }, required: ['city', 'degrees'], additionalProperties: false,
}

const used = { input: 0, output: 0 }
export function book(input, output) {
  used.input += input ?? 0
  used.output += output ?? 0
}

// main runs the modes, and tells of an error as agents do: a line, exit code 1.
export async function main(modes) {
  for (const mode of process.argv[2].split(',')) {
    model = process.env.CLIENT_MODEL ?? mode
    calls.length = used.input = used.output = 0
    const line = { mode, text: '', calls, pieces: 0, thoughts: 0 }
    try {
      Object.assign(line, await modes[mode]())
    } catch (e) {
      const last = e.lastError ?? e
      line.error = { type: e.constructor.name, status: last.status ?? last.statusCode ?? null, message: String(e.message ?? e).slice(0, 2000) }
      process.exitCode = 1
    }
    console.log(JSON.stringify({ ...line, ...used }))
  }
}
