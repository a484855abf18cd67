// ComputeSDK with its provider for E2B, as both come from npm.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compute } from 'computesdk'
import { e2b } from '@computesdk/e2b'
import { none, until } from './sandboxes.mjs'

test('ComputeSDK', { timeout: 240_000 }, async (t) => {
  compute.setConfig({ provider: e2b({}) })
  const tag = crypto.randomUUID()
  const sandbox = await compute.sandbox.create({ metadata: { tag }, envs: { FROM: 'sandbox' }, timeout: 600_000 })
  t.after(() => sandbox.destroy())
  assert.equal(sandbox.provider, 'e2b')

  // State: files, and variables of the sandbox.
  const { filesystem } = sandbox
  await filesystem.mkdir('/analysis/data')
  await filesystem.writeFile('/analysis/data/people.csv', 'name,age\nÅsa,42\n')
  assert.equal(await filesystem.readFile('/analysis/data/people.csv'), 'name,age\nÅsa,42\n')
  assert.deepEqual((await filesystem.readdir('/analysis')).map((e) => e.name), ['data'])
  assert.equal(await filesystem.exists('/analysis/data/people.csv'), true)
  await filesystem.remove('/analysis/data/people.csv')
  assert.equal(await filesystem.exists('/analysis/data/people.csv'), false)
  await assert.rejects(filesystem.readFile('/analysis/data/people.csv'))
  const state = await sandbox.runCommand('sh -c \'echo "$FROM $MORE $PWD" | tee kept\'', { env: { MORE: 'more' }, cwd: '/tmp' })
  assert.deepEqual([state.stdout, state.stderr, state.exitCode], ['sandbox more /tmp\n', '', 0])
  assert.equal((await sandbox.runCommand('cat /tmp/kept')).stdout, 'sandbox more /tmp\n')

  // A command that fails, and one that is given more time than a server allows.
  const failed = await sandbox.runCommand('echo out; echo err >&2; exit 3')
  assert.deepEqual([failed.stdout, failed.stderr, failed.exitCode], ['out\n', 'err\n', 3])
  const long = await sandbox.runCommand('sleep 2; seq 20000 | tail -1', { timeout: 86_400_000 })
  assert.deepEqual([long.stdout, long.exitCode], ['20000\n', 0])
  const late = await sandbox.runCommand('sleep 60', { timeout: 1_000 })
  assert.notEqual(late.exitCode, 0)
  assert.match(late.stderr, /timed out|timeout/i)

  // A process in the background outlives its command.
  await sandbox.runCommand('sh -c "echo started > /tmp/background; sleep 600"', { background: true })
  await until(() => filesystem.exists('/tmp/background'))
  assert.match((await sandbox.runCommand("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout, /sleep 600/)

  // Other handles, and the end.
  const again = await compute.sandbox.getById(sandbox.sandboxId)
  assert.equal((await again.runCommand('cat /tmp/background')).stdout, 'started\n')
  assert.match(await sandbox.getUrl({ port: 8000 }), new RegExp(`^https://8000-${sandbox.sandboxId}\\.`))
  await sandbox.destroy()
  await none({ tag })
})
