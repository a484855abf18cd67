// OpenAI's Agents SDK with its client for E2B's sandboxes, as both come from npm.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Runner, Usage, setTracingDisabled } from '@openai/agents'
import { Manifest, SandboxAgent, file, shell } from '@openai/agents/sandbox'
import { E2BSandboxClient } from '@openai/agents-extensions/sandbox/e2b'
import { none, until } from './sandboxes.mjs'

setTracingDisabled(true)

// script is a model that calls a tool per step, with the arguments that the step
// makes of the answers so far.
function script(steps) {
  const answers = []
  return {
    answers,
    async getResponse({ input }) {
      const results = input.filter((i) => i.type === 'function_call_result')
      answers.splice(0, answers.length, ...results.map((r) => (typeof r.output === 'string' ? r.output : r.output.text)))
      const step = steps[answers.length]
      const output = step
        ? [{ type: 'function_call', callId: `call-${answers.length}`, name: step[0], status: 'completed', arguments: JSON.stringify(step[1](answers)) }]
        : [{ type: 'message', role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: 'done' }] }]
      return { usage: new Usage(), output }
    },
    async *getStreamedResponse() {
      throw new Error('the model does not stream')
    },
  }
}

test('Agents SDK', { timeout: 240_000 }, async (t) => {
  const tag = crypto.randomUUID()
  const client = new E2BSandboxClient({
    metadata: { tag },
    timeout: 3600,
    commandTimeoutMs: 86_400_000, // a day, which the SDK for Python asks for by default
    onTimeout: 'pause',
    autoResume: true,
    allowInternetAccess: true,
    exposedPorts: [8000],
    env: { FROM: 'client' },
  })
  const session = await client.create(new Manifest({ entries: { 'notes/today.txt': file({ content: 'from the manifest\n' }) } }))
  t.after(() => session.close().catch(() => {}))

  const exec = (cmd, more) => ['exec_command', () => ({ cmd, ...more })]
  const terminal = (answers) => Number(/session ID (\d+)/.exec(answers.find((a) => a.includes('session ID')))[1])
  const model = script([
    exec('cat notes/today.txt; echo "$FROM $PWD"'),
    exec('echo kept > state.txt; echo out; echo err >&2; exit 3'),
    exec('cat state.txt; sleep 2; seq 200000 | wc -l'),
    exec('nohup sh -c "echo started > background; sleep 600" >/dev/null 2>&1 &'),
    // A terminal that goes on between two calls.
    exec('read line; echo "got $line"', { tty: true, yield_time_ms: 100 }),
    ['write_stdin', (answers) => ({ session_id: terminal(answers), chars: 'input\n', yield_time_ms: 100 })],
  ])
  const agent = new SandboxAgent({ name: 'worker', model, instructions: 'Work.', capabilities: [shell()] })
  const result = await new Runner().run(agent, 'work', { sandbox: { session }, maxTurns: 20 })
  assert.equal(result.finalOutput, 'done')
  const [first, failed, long, , ...terminals] = model.answers
  assert.match(first, /from the manifest\nclient \/workspace/)
  assert.match(failed, /exited with code 3/)
  assert.match(failed, /out/)
  assert.match(failed, /err/)
  assert.match(long, /kept\n200000/)
  let typed = terminals.join('')
  await until(async () => {
    typed += await session.writeStdin({ sessionId: terminal(terminals), yieldTimeMs: 100 })
    return typed.includes('got input')
  })
  await until(() => session.pathExists('background'))

  // The files of a session, and its end and return.
  assert.equal(new TextDecoder().decode(await session.readFile({ path: 'state.txt' })), 'kept\n')
  assert.equal(await session.pathExists('none.txt'), false)
  await assert.rejects(session.readFile({ path: 'none.txt' }))
  const archive = await session.persistWorkspace()
  const endpoint = await session.resolveExposedPort(8000)
  assert.ok(endpoint.host.startsWith(`8000-${session.state.sandboxId}.`), endpoint.host)

  session.state.pauseOnExit = true
  await session.close()
  const resumed = await client.resume(await client.deserializeSessionState(await client.serializeSessionState(session.state)))
  t.after(() => resumed.close().catch(() => {}))
  assert.equal(resumed.state.sandboxId, session.state.sandboxId)
  assert.match(await resumed.execCommand({ cmd: 'cat state.txt; rm state.txt' }), /kept/)
  await resumed.hydrateWorkspace(archive)
  assert.equal(new TextDecoder().decode(await resumed.readFile({ path: 'state.txt' })), 'kept\n')
  resumed.state.pauseOnExit = false
  await resumed.close()
  await none({ tag })
})
