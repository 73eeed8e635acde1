// @openai/agents.
import { Agent, run, tool } from '@openai/agents'
import { z } from 'zod'

const get_weather = tool({ name: 'get_weather', description: 'The weather of a city.', parameters: z.object({ city: z.string() }), execute: async () => '21 degrees' })
await run(new Agent({ name: 'weather', model: 'gpt-test', tools: [get_weather] }), 'How is the weather?', { maxTurns: 1000 })
