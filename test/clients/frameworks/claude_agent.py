# claude-agent-sdk, which starts Claude Code.
import asyncio
from claude_agent_sdk import ClaudeAgentOptions, query


async def main():
    async for message in query(prompt="do it", options=ClaudeAgentOptions(model="claude-test", permission_mode="bypassPermissions")):
        print(message)


asyncio.run(main())
