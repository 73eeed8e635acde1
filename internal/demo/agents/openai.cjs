const OpenAI = require("openai").default;

const client = new OpenAI();
const tools = [{type: "function", function: {name: "search", parameters: {type: "object", properties: {page: {type: "integer"}}}}}];
const messages = [{role: "user", content: "Find everything about everything."}];

async function main() {
  for (;;) {
    const reply = (await client.chat.completions.create({model: "gpt-6-luna", messages, tools})).choices[0].message;
    messages.push(reply);
    if (!reply.tool_calls?.length) return console.log(reply.content);
    for (const call of reply.tool_calls) {
      console.log("search", call.function.arguments);
      messages.push({role: "tool", tool_call_id: call.id, content: "a page that names two others"});
    }
  }
}

main().catch((err) => { console.error(String(err)); process.exit(1); });
