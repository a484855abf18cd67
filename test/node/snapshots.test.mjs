// Snapshots and forks by E2B's SDK as it comes from npm, against a Glovebox server; see
// e2b.test.mjs.
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import * as e2b from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'

const python = process.env.E2B_TEST_CONTEXTS !== 'no'

describe('snapshots', { timeout: 240_000 }, () => {
  test('createSnapshot, list, create, delete', async () => {
    const sandbox = await e2b.Sandbox.create({ timeoutMs: 120_000, metadata: { of: 'parent' } })
    await sandbox.files.write('/home/user/state', 'good')
    await sandbox.commands.run('sleep 600', { background: true })
    const named = await sandbox.createSnapshot({ name: 'my-snapshot' })
    const snapshot = await sandbox.createSnapshot()
    assert.match(snapshot.snapshotId, /^snap_/)
    assert.deepEqual(named.names, ['my-snapshot'])
    assert.equal(await sandbox.isRunning(), true)
    await sandbox.files.write('/home/user/state', 'bad')
    const listed = await sandbox.listSnapshots().nextItems()
    assert.deepEqual(listed.map((s) => s.snapshotId), [snapshot.snapshotId, named.snapshotId])
    assert.deepEqual(await e2b.Sandbox.listSnapshots({ apiKey: process.env.E2B_OTHER_API_KEY }).nextItems(), [])

    for (const template of [snapshot.snapshotId, 'my-snapshot']) {
      const child = await e2b.Sandbox.create(template, { timeoutMs: 60_000, metadata: { of: 'child' } })
      assert.notEqual(child.sandboxId, sandbox.sandboxId)
      assert.equal(await child.files.read('/home/user/state'), 'good')
      assert.match((await child.commands.run('ps -eo args 2>/dev/null || cat /proc/[0-9]*/cmdline | tr "\\0" " "')).stdout, /sleep 600/)
      assert.deepEqual((await child.getInfo()).metadata, { of: 'child' })
      await child.kill()
    }
    assert.equal(await sandbox.files.read('/home/user/state'), 'bad')
    await assert.rejects(e2b.Sandbox.create(snapshot.snapshotId, { apiKey: process.env.E2B_OTHER_API_KEY }))
    assert.equal(await e2b.Sandbox.deleteSnapshot(snapshot.snapshotId, { apiKey: process.env.E2B_OTHER_API_KEY }), false)
    for (const s of [snapshot, named]) assert.equal(await e2b.Sandbox.deleteSnapshot(s.snapshotId), true)
    assert.equal(await e2b.Sandbox.deleteSnapshot(snapshot.snapshotId), false)
    await sandbox.kill()
    await assert.rejects(e2b.Sandbox.createSnapshot(sandbox.sandboxId), e2b.SandboxNotFoundError)
  })

  test('pause without memory', async () => {
    const sandbox = await Sandbox.create({ timeoutMs: 120_000 })
    const boot = () => sandbox.files.read('/proc/sys/kernel/random/boot_id')
    const running = async () => (await sandbox.commands.run('cat /proc/[0-9]*/cmdline | tr "\\0" " "')).stdout.includes('sleep 600')
    await sandbox.files.write('/home/user/marker', 'kept')
    await sandbox.commands.run('sleep 600', { background: true })
    if (python) await sandbox.runCode('x = 41')
    const before = await boot()
    assert.ok(await running())
    assert.equal(await sandbox.pause({ keepMemory: false }), true)
    assert.equal(await sandbox.isRunning(), false)
    const resumed = await sandbox.connect()
    assert.equal(resumed.sandboxId, sandbox.sandboxId)
    assert.equal(await sandbox.files.read('/home/user/marker'), 'kept')
    assert.notEqual(await boot(), before)
    assert.ok(!await running())
    if (python) {
      assert.match((await sandbox.runCode('x')).error.name, /NameError/)
      assert.equal((await sandbox.runCode('6*7')).text, '42')
    }
    await sandbox.kill()
  })

  test('pause without memory at the end', async () => {
    const sandbox = await e2b.Sandbox.create({ timeoutMs: 60_000, lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
    await sandbox.files.write('/home/user/marker', 'kept')
    const before = await sandbox.files.read('/proc/sys/kernel/random/boot_id')
    await sandbox.setTimeout(1_000)
    while ((await sandbox.getInfo()).state !== 'paused') await new Promise((resolve) => setTimeout(resolve, 100))
    await sandbox.connect()
    assert.equal(await sandbox.files.read('/home/user/marker'), 'kept')
    assert.notEqual(await sandbox.files.read('/proc/sys/kernel/random/boot_id'), before)
    await sandbox.kill()
  })

  test('fork', { skip: !python }, async () => {
    const parent = await Sandbox.create({ timeoutMs: 120_000, metadata: { of: 'parent' } })
    await parent.runCode('import random; random.seed(1); x = 41')
    const forks = await parent.fork({ count: 3, timeoutMs: 60_000 })
    assert.equal(forks.length, 3)
    const seen = new Set()
    for (const fork of forks) {
      assert.ok(!(fork instanceof Error), `${fork}`)
      const child = await Sandbox.connect(fork.sandboxId)
      assert.equal((await child.runCode('x += 1; x')).text, '42')
      seen.add((await child.runCode('random.random()')).text)
      assert.deepEqual((await child.getInfo()).metadata, { of: 'parent' })
    }
    assert.equal(seen.size, 3, 'forks draw equal random numbers')
    assert.equal((await parent.runCode('x')).text, '41')
    await parent.pause()
    await assert.rejects(parent.fork(), /paused and cannot be forked/)
    for (const s of [...forks, parent]) await e2b.Sandbox.kill(s.sandboxId)
  })
})
