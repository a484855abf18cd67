// A short scenario with the oldest version 2 of E2B's SDKs, against a Glovebox
// server. The other tests use the newest. The oldest knows a domain only, and port
// 443 of hosts in it: all of them are E2B_TEST_PORT of this machine here.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import tls from 'node:tls'
import { CommandExitError, NotFoundError, Sandbox } from 'e2b-oldest'

const { connect } = tls
tls.connect = (options, ...more) => {
  assert.ok(options.host.endsWith(`.${process.env.E2B_DOMAIN}`) && Number(options.port || 443) === 443, `${options.host}:${options.port}`)
  return connect({ ...options, host: '127.0.0.1', port: process.env.E2B_TEST_PORT }, ...more)
}

test('the versions', () => {
  for (const [name, file] of [['@e2b/code-interpreter', 'e2b-oldest'], ['e2b', 'e2b-oldest/node_modules/e2b']]) {
    const { name: got, version } = JSON.parse(readFileSync(new URL(`node_modules/${file}/package.json`, import.meta.url)))
    assert.deepEqual([got, version.split('.', 2).join('.')], [name, '2.0'])
  }
})

test('a sandbox', { timeout: 240_000 }, async () => {
  const sandbox = await Sandbox.create({ envs: { FROM: 'sandbox' }, metadata: { whose: 'oldest' }, timeoutMs: 120_000 })
  try {
    assert.equal(await sandbox.isRunning(), true)
    assert.deepEqual((await sandbox.getInfo()).metadata, { whose: 'oldest' })

    const { commands, files } = sandbox
    assert.equal((await commands.run('echo $FROM')).stdout, 'sandbox\n')
    await assert.rejects(commands.run('echo err >&2; exit 3'), (err) => err instanceof CommandExitError && err.exitCode === 3 && err.stderr === 'err\n')
    const waits = await commands.run('read line; echo "got $line"', { background: true, stdin: true })
    await commands.sendStdin(waits.pid, 'a line\n')
    assert.equal((await waits.wait()).stdout, 'got a line\n')

    assert.equal(await files.exists('sub/a.txt'), false)
    await files.write('sub/a.txt', 'größe')
    assert.equal(await files.read('sub/a.txt'), 'größe')
    assert.deepEqual((await files.list('sub')).map((e) => e.name), ['a.txt'])
    await files.rename('sub/a.txt', 'sub/b.txt')
    await files.remove('sub/b.txt')
    await assert.rejects(files.read('sub/b.txt'), NotFoundError)

    if (process.env.E2B_TEST_CONTEXTS !== 'no') {
      const shown = []
      const run = await sandbox.runCode('x = 41\nprint("out")\nx + 1', { onStdout: (m) => shown.push(m.line) })
      assert.deepEqual([run.text, run.logs.stdout.join(''), shown.join('')], ['42', 'out\n', 'out\n'])
      assert.equal((await sandbox.runCode('1 / 0')).error.name, 'ZeroDivisionError')
      assert.equal((await sandbox.runCode('x')).text, '41')
      // This version sends no token with that.
      await assert.rejects(sandbox.createCodeContext({ language: 'python' }), /401/)
    }
  } finally {
    await sandbox.kill()
  }
  assert.equal(await sandbox.isRunning(), false)
})
