// Mastra with its sandbox of E2B's, as both come from npm.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Agent } from '@mastra/core/agent'
import { MastraLanguageModelV2Mock } from '@mastra/core/test-utils/llm-mock'
import { createCodeMode, createTool } from '@mastra/core/tools'
import { Workspace, WORKSPACE_TOOLS } from '@mastra/core/workspace'
import { E2BCodeModeTransport, E2BSandbox } from '@mastra/e2b'
import { z } from 'zod'
import { none, until } from './sandboxes.mjs'

const DAY = 86_400_000

// script is a model that calls a tool per step, with the arguments that the step
// makes of the answers so far.
function script(steps) {
  const answers = []
  const model = new MastraLanguageModelV2Mock({
    doGenerate: async ({ prompt }) => {
      const results = prompt.filter((m) => m.role === 'tool').flatMap((m) => m.content)
      answers.splice(0, answers.length, ...results.map((r) => r.output.value))
      const step = steps[answers.length]
      return {
        content: [step
          ? { type: 'tool-call', toolCallId: `call-${answers.length}`, toolName: step[0], input: JSON.stringify(step[1](answers)) }
          : { type: 'text', text: 'done' }],
        finishReason: step ? 'tool-calls' : 'stop',
        usage: { inputTokens: 1, outputTokens: 1, totalTokens: 2 },
        warnings: [],
      }
    },
  })
  return { answers, model }
}

test('Mastra', { timeout: 240_000 }, async (t) => {
  const id = `mastra-${crypto.randomUUID()}`
  // Without a template, Mastra has E2B build one with tools that mount buckets.
  const sandbox = new E2BSandbox({ id, template: 'base', timeout: DAY, env: { FROM: 'sandbox' }, metadata: { by: 'test' } })
  const workspace = new Workspace({ sandbox })
  await workspace.init()
  t.after(() => workspace.destroy())

  const { EXECUTE_COMMAND, GET_PROCESS_OUTPUT, KILL_PROCESS } = WORKSPACE_TOOLS.SANDBOX
  const run = (command, more) => [EXECUTE_COMMAND, () => ({ command, ...more })]
  const pid = (answers) => /PID:?\s*(\d+)/i.exec(answers[4])[1]
  const { answers, model } = script([
    run('echo "$FROM $PWD" | tee state.txt'),
    run('cat state.txt; echo out; echo err >&2; exit 3'),
    run('sleep 2; seq 200000 | wc -l', { timeout: DAY / 1000 }),
    run('sleep 60', { timeout: 1 }),
    run('echo started; touch /tmp/background; sleep 600', { background: true }),
    [GET_PROCESS_OUTPUT, (a) => ({ pid: pid(a) })],
    [KILL_PROCESS, (a) => ({ pid: pid(a) })],
  ])
  const agent = new Agent({ id: 'worker', name: 'worker', instructions: 'Work.', model, workspace })
  const { text } = await agent.generate('work', { maxSteps: 20 })
  assert.equal(text, 'done')
  const [state, failed, long, late, started, output, killed] = answers
  assert.match(state, /sandbox \/home\/user/)
  assert.match(failed, /sandbox \/home\/user\nout/)
  assert.match(failed, /err/)
  assert.match(failed, /[Ee]xit code:? 3/)
  assert.match(long, /200000/)
  assert.match(late, /timed out/)
  assert.match(started, /PID/)
  assert.equal(typeof output, 'string')
  assert.match(killed, /kill/i)

  // Files, a process with input, and one that a second handle finds.
  await sandbox.writeFiles([{ path: 'in/a.txt', content: 'a\n' }, { path: 'in/b.bin', content: Buffer.from([0, 255]) }])
  const sum = await sandbox.executeCommand('cat', ['in/a.txt'])
  assert.deepEqual([sum.stdout, sum.exitCode, sum.success], ['a\n', 0, true])
  const cat = await sandbox.processes.spawn('read line; echo "got $line"')
  await cat.sendStdin('input\n')
  const ended = await cat.wait()
  assert.deepEqual([ended.stdout, ended.exitCode], ['got input\n', 0])
  const sleeper = await sandbox.processes.spawn('sleep 600')
  assert.ok((await sandbox.processes.list()).some((p) => p.pid === sleeper.pid))

  // Code mode: a program in the sandbox calls a tool of the host.
  const add = createTool({
    id: 'add', description: 'adds', inputSchema: z.object({ a: z.number(), b: z.number() }), outputSchema: z.object({ sum: z.number() }),
    execute: async ({ a, b }) => ({ sum: a + b }),
  })
  const { tool } = createCodeMode({ tools: { add }, sandbox }, new E2BCodeModeTransport())
  const coder = script([[tool.id, () => ({ code: 'const r: { sum: number } = await external_add({ a: 1, b: 2 }); return r.sum' })]])
  await t.test('code mode', { skip: process.env.E2B_TEST_NODE === 'no' }, async () => {
    await new Agent({ id: 'coder', name: 'coder', instructions: 'Code.', model: coder.model, tools: { [tool.id]: tool } }).generate('code')
    assert.equal(coder.answers[0].result, 3, JSON.stringify(coder.answers))
  })

  // Stopping pauses, and a sandbox of the same name goes on.
  await sandbox._stop()
  const again = new E2BSandbox({ id, template: 'base' })
  await again._start()
  assert.equal((await again.executeCommand('cat', ['state.txt'])).stdout, 'sandbox /home/user\n')
  const found = await again.processes.get(sleeper.pid)
  assert.equal(await found.kill(), true)
  await until(async () => !(await again.processes.list()).some((p) => p.pid === sleeper.pid))
  await again._destroy()
  await none({ 'mastra-sandbox-id': id })
})
