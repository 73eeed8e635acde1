// The ai package of Vercel, with the provider that is named.
import { generateText, stepCountIs, tool } from 'ai'
import { openai } from '@ai-sdk/openai'
import { anthropic } from '@ai-sdk/anthropic'
import { z } from 'zod'

const model = process.argv[2] === 'anthropic' ? anthropic('claude-test') : openai('gpt-test')
const get_weather = tool({ description: 'The weather of a city.', inputSchema: z.object({ city: z.string() }), execute: async () => '21 degrees' })
await generateText({ model, tools: { get_weather }, prompt: 'How is the weather?', stopWhen: stepCountIs(1000) })
