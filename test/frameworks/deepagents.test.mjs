// LangChain's deepagents, as it comes from npm: its agent, its tools for files
// and commands, and its BaseSandbox. There is no package of a backend for E2B on
// npm, so this one has the three methods that deepagents asks of a backend.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AIMessage } from '@langchain/core/messages'
import { fakeModel } from '@langchain/core/testing'
import { BaseSandbox, createDeepAgent } from 'deepagents'
import { CommandExitError, FileNotFoundError, Sandbox } from 'e2b'
import { none, until } from './sandboxes.mjs'

const DAY = 86_400_000

class E2BBackend extends BaseSandbox {
  constructor(sandbox) {
    super()
    this.sandbox = sandbox
    this.id = sandbox.sandboxId
  }

  async execute(command) {
    const result = await this.sandbox.commands.run(command, { timeoutMs: DAY }).catch((err) => {
      if (err instanceof CommandExitError) return err
      throw err
    })
    return { output: result.stdout + result.stderr, exitCode: result.exitCode, truncated: false }
  }

  async uploadFiles(files) {
    await this.sandbox.files.write(files.map(([path, data]) => ({ path, data: new Blob([data]) })))
    return files.map(([path]) => ({ path, error: null }))
  }

  async downloadFiles(paths) {
    return Promise.all(paths.map(async (path) => {
      try {
        return { path, content: await this.sandbox.files.read(path, { format: 'bytes' }), error: null }
      } catch (err) {
        if (!(err instanceof FileNotFoundError)) throw err
        return { path, content: null, error: 'file_not_found' }
      }
    }))
  }
}

test('deepagents', { timeout: 240_000 }, async (t) => {
  const tag = crypto.randomUUID()
  const sandbox = await Sandbox.create({ metadata: { tag }, timeoutMs: DAY })
  t.after(() => sandbox.kill())
  const dir = '/home/user/project'
  const steps = [
    ['write_file', { file_path: `${dir}/app.py`, content: 'for n in range(3):\n    print("line", n)\n' }],
    ['read_file', { file_path: `${dir}/app.py` }],
    ['edit_file', { file_path: `${dir}/app.py`, old_string: 'line', new_string: 'row' }],
    ['execute', { command: `cd ${dir} && cat app.py > copy.txt && echo "pid of the first: $$"` }],
    ['ls', { path: dir }],
    ['glob', { pattern: '**/*.py', path: '/home/user' }],
    ['grep', { pattern: 'row', path: dir }],
    ['execute', { command: 'echo out; echo err >&2; exit 3' }],
    ['execute', { command: 'sleep 2; seq 200000 | wc -l' }],
    ['execute', { command: 'nohup sh -c "echo started > /tmp/background; sleep 600" > /dev/null 2>&1 &' }],
    ['read_file', { file_path: `${dir}/none.py` }],
  ]
  // The answers of a tool are the last message when the model is asked again.
  const model = fakeModel()
  steps.forEach(([name, args], n) => model.respondWithTools([{ name, args, id: `call-${n}` }]))
  model.respond(new AIMessage('done'))
  const agent = createDeepAgent({ model, backend: new E2BBackend(sandbox) })
  const { messages } = await agent.invoke({ messages: [{ role: 'user', content: 'work' }] }, { recursionLimit: 200 })
  assert.equal(messages.at(-1).text, 'done')
  const answers = messages.filter((m) => m.getType() === 'tool').map((m) => m.text)
  assert.equal(answers.length, steps.length)
  const [written, read, edited, ran, listed, globbed, grepped, failed, long, , missing] = answers
  assert.match(written, /app\.py/)
  assert.match(read, /1\tfor n in range\(3\):\n\s+2\t {4}print\("line", n\)/)
  assert.match(edited, /app\.py/)
  assert.match(ran, /pid of the first: \d+/)
  assert.match(listed, /app\.py[\s\S]*copy\.txt|copy\.txt[\s\S]*app\.py/)
  assert.match(globbed, /project\/app\.py/)
  assert.match(grepped, /copy\.txt[\s\S]*print\("row", n\)|app\.py[\s\S]*print\("row", n\)/)
  assert.match(failed, /out\nerr\n[\s\S]*exit code 3/)
  assert.match(long, /200000/)
  assert.match(missing, /not found/)
  await until(() => sandbox.files.exists('/tmp/background'))
  assert.equal((await sandbox.commands.run('cat /home/user/project/app.py')).stdout, 'for n in range(3):\n    print("row", n)\n')
  assert.equal(await sandbox.kill(), true)
  await none({ tag })
})
