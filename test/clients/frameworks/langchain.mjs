// The agent of langchain for Node.
import { createAgent, tool } from 'langchain'
import { ChatOpenAI } from '@langchain/openai'
import { z } from 'zod'

const get_weather = tool(async () => '21 degrees', { name: 'get_weather', description: 'The weather of a city.', schema: z.object({ city: z.string() }) })
await createAgent({ model: new ChatOpenAI({ model: 'gpt-test' }), tools: [get_weather] }).invoke({ messages: [{ role: 'user', content: 'How is the weather?' }] }, { recursionLimit: 1000 })
