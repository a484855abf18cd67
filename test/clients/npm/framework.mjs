// Runs an agent of a framework with the tools of Glovebox:
//
//	node framework.mjs langchain
//
// MODEL is the URL of the model. The server is the program GLOVEBOX over stdio, or
// GLOVEBOX_URL with GLOVEBOX_TOKEN. TIMEOUT is the time in milliseconds after which
// the framework gives up a call, if it is not the framework's own.
import { argv, env, exit } from 'node:process';

const prompt = 'Follow the script.';
const steps = 50;
const timeout = env.TIMEOUT ? Number(env.TIMEOUT) : undefined;
const headers = { Authorization: `Bearer ${env.GLOVEBOX_TOKEN}` };
const stdio = { command: env.GLOVEBOX, args: ['mcp'], env: { HOME: env.HOME, PATH: env.PATH } };

const frameworks = {
  async 'openai-agents'() {
    const { Agent, MCPServerStdio, MCPServerStreamableHttp, run, setTracingDisabled } = await import('@openai/agents');
    setTracingDisabled(true);
    const server = env.GLOVEBOX_URL
      ? new MCPServerStreamableHttp({ name: 'glovebox', url: env.GLOVEBOX_URL, requestInit: { headers }, timeout })
      : new MCPServerStdio({ name: 'glovebox', ...stdio, timeout });
    await server.connect();
    try {
      await run(new Agent({ name: 'agent', model: 'gpt-5', mcpServers: [server] }), prompt, { maxTurns: steps });
    } finally {
      await server.close();
    }
  },

  async 'ai-sdk'() {
    const { generateText, stepCountIs } = await import('ai');
    const { createMCPClient } = await import('@ai-sdk/mcp');
    const { Experimental_StdioMCPTransport: Stdio } = await import('@ai-sdk/mcp/mcp-stdio');
    const { createOpenAI } = await import('@ai-sdk/openai');
    const client = await createMCPClient({
      transport: env.GLOVEBOX_URL ? { type: 'http', url: env.GLOVEBOX_URL, headers } : new Stdio(stdio),
    });
    try {
      await generateText({
        model: createOpenAI({ baseURL: `${env.MODEL}/v1`, apiKey: 'scripted' })('gpt-5'),
        tools: await client.tools(),
        stopWhen: stepCountIs(steps),
        timeout: timeout && { toolMs: timeout },
        prompt,
      });
    } finally {
      await client.close();
    }
  },

  async langchain() {
    const { createAgent } = await import('langchain');
    await withLangChain({}, (tools, model) => createAgent({ model, tools }));
  },

  async deepagents() {
    const { createDeepAgent } = await import('deepagents');
    const { createMiddleware, ToolMessage } = await import('langchain');
    // Without it, the error of a tool ends the agent.
    const survive = createMiddleware({
      name: 'errors of tools are results',
      wrapToolCall: async (request, handler) => {
        try {
          return await handler(request);
        } catch (err) {
          return new ToolMessage({ content: String(err.message), tool_call_id: request.toolCall.id, status: 'error' });
        }
      },
    });
    // The framework has a read_file and a write_file of its own, and refuses others.
    await withLangChain({ prefixToolNameWithServerName: true }, (tools, model) => createDeepAgent({ model, tools, middleware: [survive] }));
  },

  async mastra() {
    const { MCPClient } = await import('@mastra/mcp');
    const { Agent } = await import('@mastra/core/agent');
    const { createOpenAI } = await import('@ai-sdk/openai');
    const client = new MCPClient({
      timeout,
      servers: { glovebox: env.GLOVEBOX_URL ? { url: new URL(env.GLOVEBOX_URL), requestInit: { headers } } : stdio },
    });
    try {
      const agent = new Agent({
        id: 'agent', name: 'agent', instructions: 'Use the tools.',
        model: createOpenAI({ baseURL: `${env.MODEL}/v1`, apiKey: 'scripted' }).chat('gpt-5'),
        tools: await client.listTools(),
      });
      await agent.generate(prompt, { maxSteps: steps });
    } finally {
      await client.disconnect();
    }
  },
};

async function withLangChain(options, make) {
  const { MultiServerMCPClient } = await import('@langchain/mcp-adapters');
  const { ChatAnthropic } = await import('@langchain/anthropic');
  const client = new MultiServerMCPClient({
    ...options,
    defaultToolTimeout: timeout,
    mcpServers: { glovebox: env.GLOVEBOX_URL ? { transport: 'http', url: env.GLOVEBOX_URL, headers } : { transport: 'stdio', ...stdio } },
  });
  try {
    const model = new ChatAnthropic({ model: 'claude-sonnet-4-5', apiKey: 'scripted', anthropicApiUrl: env.MODEL });
    const agent = make(await client.getTools(), model);
    await agent.invoke({ messages: [{ role: 'user', content: prompt }] }, { recursionLimit: 10 * steps });
  } finally {
    await client.close();
  }
}

await frameworks[argv[2]]();
exit(0);
