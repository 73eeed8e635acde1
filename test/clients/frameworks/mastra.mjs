// The agent of @mastra/core.
import { Agent } from '@mastra/core/agent'
import { createTool } from '@mastra/core/tools'
import { openai } from '@ai-sdk/openai'
import { z } from 'zod'

const get_weather = createTool({ id: 'get_weather', description: 'The weather of a city.', inputSchema: z.object({ city: z.string() }), execute: async () => '21 degrees' })
const agent = new Agent({ id: 'weather', name: 'weather', instructions: 'You tell the weather.', model: openai('gpt-test'), tools: { get_weather } })
const answer = await agent.generate('How is the weather?', { maxSteps: 1000 })
if (answer.error) throw answer.error
