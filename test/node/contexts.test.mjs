// Fills a sandbox with contexts of Python, with E2B's SDK against a Glovebox
// server: E2B_TEST_MANY says whether 100 of them have room, or memory for a few.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox } from '@e2b/code-interpreter'

const many = process.env.E2B_TEST_MANY === 'yes'
const requestTimeoutMs = 240_000

// Calls f for the numbers below n, a few at once.
const atOnce = async (n, f) => {
  const numbers = Array(n).keys()
  await Promise.all(Array.from({ length: 8 }, async () => {
    for (const i of numbers) await f(i)
  }))
}
const processes = async (sandbox) => Number((await sandbox.commands.run('ls -d /proc/[0-9]* | wc -l')).stdout)

test('100 contexts', { skip: !many, timeout: 480_000 }, async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 900_000 })
  try {
    const before = await processes(sandbox)
    const contexts = []
    await atOnce(100, async (i) => { contexts[i] = await sandbox.createCodeContext({ requestTimeoutMs }) })
    assert.equal(new Set(contexts.map((c) => c.id)).size, 100)
    await atOnce(100, (i) => sandbox.runCode(`x = ${i}`, { context: contexts[i], requestTimeoutMs }))
    await atOnce(100, async (i) => {
      assert.equal((await sandbox.runCode('x', { context: contexts[i], requestTimeoutMs })).text, `${i}`)
    })
    assert.ok(await processes(sandbox) >= before + 100)
    await atOnce(100, (i) => sandbox.removeCodeContext(contexts[i], { requestTimeoutMs }))
    while (await processes(sandbox) > before) await new Promise((r) => setTimeout(r, 100))
    assert.deepEqual((await sandbox.listCodeContexts()).filter((c) => contexts.some((o) => o.id === c.id)), [])
  } finally {
    await sandbox.kill()
  }
})

test('the memory of a sandbox', { skip: many, timeout: 480_000 }, async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 900_000 })
  try {
    const contexts = []
    let failed
    for (let i = 0; i < 100 && !failed; i++) {
      try {
        const context = await sandbox.createCodeContext({ requestTimeoutMs })
        contexts.push(context)
        const run = await sandbox.runCode('x = bytearray(30 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\nlen(x)', { context, requestTimeoutMs })
        failed = run.error && `${run.error.name}: ${run.error.value}`
      } catch (err) {
        failed = `${err}`
      }
    }
    assert.match(failed ?? 'no error', /the sandbox used more than its 192 MiB of memory and was killed/)
    await assert.rejects(sandbox.runCode('1', { context: contexts[0] }), /more than its 192 MiB of memory/)
    // The next sandbox is of use.
    const next = await Sandbox.create()
    assert.equal((await next.runCode('6 * 7')).text, '42')
    await next.kill()
  } finally {
    await sandbox.kill()
  }
})
