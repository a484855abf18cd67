// Uses every method that the documentation of E2B's SDKs names, with the SDKs
// as they come from npm, against a Glovebox server. The environment points them
// there: E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL. E2B_OTHER_API_KEY is
// another principal's.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { request } from 'node:http'
import { after, before, describe, test } from 'node:test'
import * as e2b from 'e2b'
import { E2B, Sandbox } from '@e2b/code-interpreter'

const { CommandExitError, FileNotFoundError, FileType, InvalidArgumentError, NotFoundError, SandboxNotFoundError, TimeoutError } = e2b
const other = process.env.E2B_OTHER_API_KEY
const python = process.env.E2B_TEST_CONTEXTS !== 'no'
const keepsMetadata = process.env.E2B_TEST_METADATA !== 'no'
const pauses = process.env.E2B_TEST_PAUSE !== 'no'
const buildsTemplates = process.env.E2B_TEST_TEMPLATES !== 'no'

const everything = async (paginator) => {
  const all = []
  while (paginator.hasNext) all.push(...(await paginator.nextItems()))
  return all
}
// Waits for what another process does; the test's own timeout bounds it.
const until = async (what) => {
  for (;;) {
    const got = await what()
    if (got) return got
    await new Promise((r) => setTimeout(r, 20))
  }
}
const message = (status) => (err) => err.message.includes(String(status)) || assert.fail(`${err.name}: ${err.message}`)

describe('sandboxes', { concurrency: true, timeout: 240_000 }, () => {
  test('create, info, list, kill', async () => {
    const tag = crypto.randomUUID()
    const made = await Promise.all([1, 2, 3].map((n) =>
      e2b.Sandbox.create({ metadata: { tag, n: `${n}`, 'odd key&=%': 'odd value&=%' }, envs: { FROM: 'sandbox' }, timeoutMs: 120_000, allowInternetAccess: false })))
    const [one] = made
    const info = await one.getInfo()
    assert.equal(info.sandboxId, one.sandboxId)
    assert.equal(info.templateId, 'base')
    assert.equal(info.name, 'base')
    assert.deepEqual(info.metadata, { tag, n: '1', 'odd key&=%': 'odd value&=%' })
    assert.equal(info.state, 'running')
    assert.equal(info.cpuCount, 1)
    assert.equal(info.memoryMB, 512)
    assert.equal(info.allowInternetAccess, false)
    assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false })
    assert.ok(Math.abs(info.endAt - info.startedAt - 120_000) < 5_000, `${info.startedAt} to ${info.endAt}`)
    assert.deepEqual(await e2b.Sandbox.getInfo(one.sandboxId), info)
    assert.match(one.sandboxId, /^[a-z0-9]+$/)
    assert.deepEqual(await e2b.Sandbox.getInfo(one.sandboxId.replace('sbx', 'sbx_')), info)
    assert.ok(one.getHost(8000).startsWith(`8000-${one.sandboxId}.`))
    // The domain alone is checked: a random identifier can contain "e2b", too.
    assert.ok(!one.getHost(8000).slice(`8000-${one.sandboxId}.`.length).includes('e2b'), 'a token would go to E2B')

    const ids = (l) => l.map((s) => s.sandboxId).sort()
    assert.deepEqual(ids(await everything(e2b.Sandbox.list({ query: { metadata: { tag } } }))), ids(made))
    assert.deepEqual(ids(await everything(e2b.Sandbox.list({ query: { metadata: { tag, 'odd key&=%': 'odd value&=%', n: '2' } } }))), [made[1].sandboxId])
    assert.deepEqual(await everything(e2b.Sandbox.list({ query: { metadata: { tag: 'none' } } })), [])
    assert.deepEqual(await everything(e2b.Sandbox.list({ query: { metadata: { tag }, state: ['paused'] } })), [])
    assert.equal((await everything(e2b.Sandbox.list({ query: { metadata: { tag }, state: ['running', 'paused'], template: 'base' } }))).length, 3)
    assert.deepEqual(await everything(e2b.Sandbox.list({ query: { metadata: { tag }, template: 'another' } })), [])
    assert.deepEqual(await everything(e2b.Sandbox.list({ query: { metadata: { tag }, startedAfter: new Date() } })), [])
    const pages = e2b.Sandbox.list({ query: { metadata: { tag } }, limit: 2, order: 'asc' })
    const first = await pages.nextItems()
    assert.equal(first.length, 2)
    assert.ok(pages.hasNext && pages.nextToken)
    const rest = await pages.nextItems()
    assert.equal(rest.length, 1)
    assert.ok(!pages.hasNext)
    assert.deepEqual(ids([...first, ...rest]), ids(made))
    assert.ok(first[0].startedAt <= first[1].startedAt && first[1].startedAt <= rest[0].startedAt)

    await one.setTimeout(60_000)
    const shorter = await one.getInfo()
    assert.ok(shorter.endAt - Date.now() < 61_000 && shorter.endAt < info.endAt)
    await e2b.Sandbox.setTimeout(one.sandboxId, 180_000)
    assert.ok((await one.getInfo()).endAt > info.endAt)
    await one.setTimeout(100 * 3600_000)
    const longest = await one.getInfo()
    assert.ok(longest.endAt - longest.startedAt <= 24 * 3600_000, 'a sandbox outlives its lifetime')
    await assert.rejects(one.setTimeout(-1000), message(400))

    assert.equal(await one.isRunning(), true)
    assert.equal(await one.kill(), true)
    assert.equal(await one.kill(), false)
    assert.equal(await e2b.Sandbox.kill(made[1].sandboxId), true)
    assert.equal(await e2b.Sandbox.kill('sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa'), false)
    assert.equal(await one.isRunning(), false)
    await assert.rejects(one.commands.run('true'), SandboxNotFoundError)
    await assert.rejects(one.files.read('x'), TimeoutError)
    await assert.rejects(one.getInfo(), SandboxNotFoundError)
    await assert.rejects(one.setTimeout(1000), SandboxNotFoundError)
    await made[2].kill()
  })

  test('where nothing pauses', { skip: pauses }, async () => {
    const sandbox = await e2b.Sandbox.create({ timeoutMs: 60_000 })
    try {
      const again = await e2b.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 90_000 })
      assert.equal(await again.isRunning(), true)
      await assert.rejects(sandbox.pause(), message(501))
      assert.equal(await sandbox.isRunning(), true)
      await assert.rejects(e2b.Sandbox.create({ lifecycle: { onTimeout: 'pause' } }), message(501))
    } finally {
      await sandbox.kill()
    }
  })

  test('connect, pause, resume', { skip: !pauses }, async () => {
    const sandbox = await e2b.Sandbox.create({ timeoutMs: 60_000 })
    try {
      const again = await e2b.Sandbox.connect(sandbox.sandboxId)
      await again.files.write('memory.txt', 'kept')
      const before = (await sandbox.getInfo()).endAt
      await e2b.Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1_000 })
      assert.deepEqual((await sandbox.getInfo()).endAt, new Date(Math.max(before, (await sandbox.getInfo()).endAt)))
      const program = await sandbox.commands.run('i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.02; done', { background: true, timeoutMs: 0 })
      await until(async () => (await sandbox.files.exists('count')))
      assert.equal(await sandbox.pause(), true)
      assert.equal(await sandbox.pause(), false)
      assert.equal((await sandbox.getInfo()).state, 'paused')
      assert.equal(await sandbox.isRunning(), false)
      await assert.rejects(sandbox.files.read('memory.txt'), TimeoutError)
      await assert.rejects(program.wait())
      const measured = await sandbox.getMetrics()
      assert.deepEqual(await sandbox.getMetrics(), measured, 'a paused sandbox is measured')
      const paused = await everything(e2b.Sandbox.list({ query: { state: ['paused'] } }))
      assert.ok(paused.some((s) => s.sandboxId === sandbox.sandboxId))
      const resumed = await sandbox.connect({ timeoutMs: 90_000 })
      assert.equal((await resumed.getInfo()).state, 'running')
      assert.equal(await resumed.files.read('memory.txt'), 'kept')
      const count = Number(await resumed.files.read('count'))
      await until(async () => Number(await resumed.files.read('count')) > count)
      assert.equal(await sandbox.betaPause(), true)
      await e2b.Sandbox.connect(sandbox.sandboxId)
      assert.equal(await e2b.Sandbox.betaPause(sandbox.sandboxId), true)
      await e2b.Sandbox.connect(sandbox.sandboxId)
      assert.equal(await e2b.Sandbox.pause(sandbox.sandboxId), true)
      await e2b.Sandbox.connect(sandbox.sandboxId)
      assert.equal(await sandbox.isRunning(), true)
      await sandbox.pause()
      const reboot = await sandbox.connect({ onResume: 'reboot' })
      assert.equal(await reboot.files.read('memory.txt'), 'kept')
      const last = await reboot.files.read('count')
      await new Promise((resolve) => setTimeout(resolve, 200))
      assert.equal(await reboot.files.read('count'), last, 'a program outlived a start without memory')
    } finally {
      await sandbox.kill()
    }
    await assert.rejects(e2b.Sandbox.connect(sandbox.sandboxId), SandboxNotFoundError)
    await assert.rejects(sandbox.pause(), SandboxNotFoundError)
  })

  test('what becomes of it at its end', { skip: !pauses }, async () => {
    const [killed, paused, woken] = await Promise.all([
      e2b.Sandbox.create({ timeoutMs: 1_000 }),
      e2b.Sandbox.create({ timeoutMs: 1_000, lifecycle: { onTimeout: 'pause' } }),
      e2b.Sandbox.create({ timeoutMs: 1_000, lifecycle: { onTimeout: 'pause', autoResume: true } }),
    ])
    assert.deepEqual((await woken.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: true })
    await until(async () => !(await killed.isRunning()))
    await until(async () => (await paused.getInfo()).state === 'paused' && (await woken.getInfo()).state === 'paused')
    await until(() => killed.getInfo().then(() => false, (err) => err instanceof SandboxNotFoundError))
    assert.equal(await paused.isRunning(), false)
    assert.equal(await woken.isRunning(), true)
    assert.equal((await woken.commands.run('echo awake')).stdout, 'awake\n')
    await Promise.all([paused.kill(), woken.kill()])
  })

  test('metrics', async () => {
    const sandbox = await e2b.Sandbox.create()
    try {
      await sandbox.commands.run('head -c 3000000 /dev/zero > data')
      const m = (await sandbox.getMetrics()).at(-1)
      assert.equal(m.cpuCount, 1)
      assert.ok(m.cpuUsedPct >= 0 && m.cpuUsedPct <= 100, `${m.cpuUsedPct} %`)
      assert.ok(m.memTotal > 0 && m.memUsed > 0 && m.memUsed <= m.memTotal, `${m.memUsed} of ${m.memTotal}`)
      assert.ok(m.diskTotal > 0 && m.diskUsed >= 3_000_000 && m.diskUsed <= m.diskTotal, `${m.diskUsed} of ${m.diskTotal}`)
      assert.ok(Math.abs(m.timestamp - Date.now()) < 60_000)
      assert.deepEqual(await e2b.Sandbox.getMetrics(sandbox.sandboxId, { end: new Date(Date.now() - 3600_000) }), [])
      // The history grows by itself.
      const history = await until(async () => {
        const all = await sandbox.getMetrics()
        return all.length > 2 && all
      })
      for (const [i, { timestamp }] of history.entries()) assert.ok(i === 0 || timestamp >= history[i - 1].timestamp, 'not by time')
      const since = history[1].timestamp
      assert.ok((await sandbox.getMetrics({ start: since })).length < (await sandbox.getMetrics()).length)
    } finally {
      await sandbox.kill()
    }
  })

  // The SDKs have no method for logs; E2B's command line asks like this.
  test('logs', async () => {
    const sandbox = await e2b.Sandbox.create()
    try {
      await sandbox.commands.run('echo out; echo err >&2')
      const logs = async (query) => {
        const r = await fetch(`${process.env.E2B_API_URL}/v2/sandboxes/${sandbox.sandboxId}/logs?${query}`, { headers: { 'X-API-KEY': process.env.E2B_API_KEY } })
        assert.equal(r.status, 200, await r.clone().text())
        return (await r.json()).logs.map((l) => l.message)
      }
      const all = await until(async () => {
        const now = await logs('')
        return now.at(-1) === 'exit status 0' && now
      })
      assert.deepEqual(all.slice(0, 2), ['the sandbox was created', 'echo out; echo err >&2'])
      assert.deepEqual(all.slice(2, 4).sort(), ['err', 'out'])
      assert.deepEqual(await logs('level=warn'), ['err'])
      assert.deepEqual(await logs('search=exit&direction=backward'), ['exit status 0'])
    } finally {
      await sandbox.kill()
    }
  })

  test('what cannot be had is refused', async () => {
    const refused = [
      { iam: { tokens: { a: { audience: 'x', tokenType: 'JWT-SVID' } } } },
      { network: { egressProxy: { address: 'x:1' } } },
    ]
    if (!pauses) refused.push({ lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
    for (const opts of refused) await assert.rejects(e2b.Sandbox.create(opts), message(501), JSON.stringify(opts))
    await assert.rejects(e2b.Sandbox.create('no such/Template:x'), (err) => /^(400|404|501)/.test(err.message) || assert.fail(err))
    await assert.rejects(e2b.Sandbox.create({ envs: { '1=2': 'x' } }), message(400))
    await assert.rejects(e2b.Sandbox.create({ network: { denyOut: ['example.com'] } }), message(400)) // as at E2B
    // The SDK itself starts the gateway, and the image has no such program.
    await assert.rejects(e2b.Sandbox.create('base', { mcp: { exa: { apiKey: 'x' } } }), /Failed to start MCP gateway/)
    const sandbox = await e2b.Sandbox.create()
    try {
      if (!pauses) { // else see snapshots.test.mjs
        await assert.rejects(sandbox.fork(), message(501))
        await assert.rejects(sandbox.createSnapshot(), message(501))
      }
      assert.deepEqual(await sandbox.listSnapshots().nextItems(), [])
      // The SDK asks for the removal of a template, of which there is none.
      if (buildsTemplates) assert.equal(await e2b.Sandbox.deleteSnapshot('x'), false)
      else await assert.rejects(e2b.Sandbox.deleteSnapshot('x'), message(501))
      await assert.rejects(sandbox.updateNetwork({ denyOut: [e2b.ALL_TRAFFIC], allowOut: ['example.com'] }), message(400)) // the operator allows none
      // The operator has no secrets here, and clients make none.
      assert.deepEqual(await everything(e2b.Secret.list()), [])
      assert.equal(await e2b.Secret.exists('KEY'), false)
      await assert.rejects(e2b.Secret.create('key', 'value'), message(501))
      await assert.rejects(e2b.Secret.update('KEY', 'value'), message(501))
      await assert.rejects(e2b.Secret.destroy('KEY'), message(501))
      assert.equal(await e2b.Template.exists('code-interpreter-v1'), true)
      assert.equal(await e2b.Template.exists('no-such-template'), false)
    } finally {
      await sandbox.kill()
    }
  })

  test('what is granted in part', async () => {
    // The operator allows no network here.
    const sandbox = await e2b.Sandbox.create({ allowInternetAccess: true, timeoutMs: 100 * 3600_000, network: { allowPublicTraffic: true } })
    try {
      const info = await sandbox.getInfo()
      assert.equal(info.allowInternetAccess, false)
      assert.deepEqual(info.network.denyOut, [e2b.ALL_TRAFFIC])
      assert.ok(info.endAt - info.startedAt <= 24 * 3600_000)
      await sandbox.updateNetwork({ denyOut: [e2b.ALL_TRAFFIC] })
      await sandbox.updateNetwork({ denyOut: ['8.8.8.8', '192.0.2.0/24'] })
      await sandbox.updateNetwork({ allowInternetAccess: true })
      assert.equal((await sandbox.getInfo()).allowInternetAccess, false)
    } finally {
      await sandbox.kill()
    }
    await assert.rejects(sandbox.fork(), SandboxNotFoundError)
  })

  test('a timeout of zero is now', async () => {
    const [killed, born] = await Promise.all([e2b.Sandbox.create(), e2b.Sandbox.create({ timeoutMs: 0 })])
    await killed.setTimeout(0)
    const isGone = (sandbox) => sandbox.getInfo().then(() => false, (err) => err instanceof SandboxNotFoundError)
    await until(async () => (await isGone(killed)) && (await isGone(born)))
    assert.equal(await killed.isRunning(), false)
    assert.equal(await killed.kill(), false)
    if (!pauses) return
    const paused = await e2b.Sandbox.create({ lifecycle: { onTimeout: 'pause' } })
    await paused.setTimeout(0)
    await until(async () => (await paused.getInfo()).state === 'paused')
    await paused.kill()
  })

  test('ports', { skip: !python }, async () => {
    const host = 'app.example.com:${PORT}'
    const made = await Promise.all([true, false].map((allowPublicTraffic) => e2b.Sandbox.create({ network: { allowPublicTraffic, maskRequestHost: host } })))
    // Not every machine resolves names below localhost.
    const ask = (sandbox, port, headers) => new Promise((resolve, reject) => {
      const at = new URL(`http://${sandbox.getHost(port)}/name`)
      const req = request({ host: '127.0.0.1', port: at.port, path: at.pathname, headers: { host: at.host, ...headers } }, async (res) => {
        let body = ''
        for await (const chunk of res) body += chunk
        resolve({ status: res.statusCode, body })
      })
      req.on('error', reject).end()
    })
    try {
      for (const sandbox of made) {
        await sandbox.files.write('serve.py', 'import http.server\n'
          + 'class H(http.server.BaseHTTPRequestHandler):\n'
          + '    def do_GET(self):\n'
          + '        self.send_response(200); self.end_headers(); self.wfile.write(self.headers["Host"].encode())\n'
          + 'http.server.HTTPServer(("127.0.0.1", 8000), H).serve_forever()\n')
        await sandbox.commands.run('python3 serve.py', { background: true, timeoutMs: 0 })
        const token = { 'e2b-traffic-access-token': sandbox.trafficAccessToken }
        await until(async () => (await ask(sandbox, 8000, token)).status === 200)
        assert.equal((await ask(sandbox, 8000, token)).body, 'app.example.com:8000')
        const dead = await ask(sandbox, 8001, token)
        assert.equal(dead.status, 502)
        assert.deepEqual(JSON.parse(dead.body), { sandboxId: sandbox.sandboxId, message: 'The sandbox is running but port is not open', port: 8001, code: 502 })
      }
      const [open, closed] = made
      // The token for ports is not the one for the sandbox.
      assert.notEqual(closed.trafficAccessToken, closed.envdAccessToken)
      const { connectionConfig, sandboxId, trafficAccessToken } = closed
      const withTokens = (envdAccessToken) => new Sandbox({ ...connectionConfig, sandboxId, envdVersion: '0.5.7', envdAccessToken, trafficAccessToken })
      for (const mere of [withTokens(undefined), withTokens(trafficAccessToken)]) {
        await assert.rejects(mere.files.read('serve.py'), e2b.AuthenticationError)
        await assert.rejects(mere.commands.run('true'), e2b.AuthenticationError)
        await assert.rejects(mere.runCode('1'), message(401))
        assert.ok(Array.isArray(await mere.listCodeContexts()))
      }
      assert.equal((await withTokens(closed.envdAccessToken).runCode('1 + 1')).text, '2')
      assert.equal((await open.getInfo()).network.allowPublicTraffic, true)
      assert.equal((await closed.getInfo()).network.allowPublicTraffic, false)
      assert.deepEqual(await ask(open, 8000), { status: 200, body: 'app.example.com:8000' })
      assert.equal((await ask(open, 49983)).status, 401)
      const refused = await ask(closed, 8000)
      assert.equal(refused.status, 403)
      assert.equal(JSON.parse(refused.body).sandboxId, closed.sandboxId)
    } finally {
      await Promise.all(made.map((sandbox) => sandbox.kill()))
    }
  })

  test('principals see nothing of each other', async () => {
    const sandbox = await e2b.Sandbox.create({ metadata: { whose: 'mine' } })
    const mallory = new E2B({ apiKey: other })
    const id = sandbox.sandboxId
    try {
      assert.deepEqual((await everything(mallory.Sandbox.list())).filter((s) => s.sandboxId === id), [])
      await assert.rejects(mallory.Sandbox.connect(id), SandboxNotFoundError)
      await assert.rejects(mallory.Sandbox.getInfo(id), SandboxNotFoundError)
      await assert.rejects(mallory.Sandbox.pause(id), SandboxNotFoundError)
      await assert.rejects(mallory.Sandbox.setTimeout(id, 1000), SandboxNotFoundError)
      await assert.rejects(mallory.Sandbox.getMetrics(id), SandboxNotFoundError)
      assert.equal(await mallory.Sandbox.kill(id), false)
      const own = await mallory.Sandbox.create()
      const stolen = new Sandbox({ ...own.connectionConfig, sandboxId: id, envdVersion: '0.5.7', envdAccessToken: own.envdAccessToken, trafficAccessToken: own.trafficAccessToken })
      await assert.rejects(stolen.files.read('/etc/hostname'), e2b.AuthenticationError)
      await assert.rejects(stolen.commands.run('true'), e2b.AuthenticationError)
      await assert.rejects(stolen.runCode('1'), message(401))
      await assert.rejects(stolen.listCodeContexts(), message(401))
      await own.kill()
      await assert.rejects(e2b.Sandbox.create({ apiKey: 'e2b_' + '00'.repeat(20) }), e2b.AuthenticationError)
      assert.equal(await sandbox.isRunning(), true)
    } finally {
      await sandbox.kill()
    }
  })
})

describe('in a sandbox', { concurrency: true, timeout: 240_000 }, () => {
  let sandbox
  before(async () => {
    sandbox = await Sandbox.create({ envs: { FROM: 'sandbox', BOTH: 'sandbox' }, timeoutMs: 600_000 })
  })
  after(() => sandbox.kill())

  test('commands', async () => {
    const { commands } = sandbox
    const home = (await commands.run('pwd')).stdout.trim()
    assert.equal((await commands.run('echo ~')).stdout.trim(), home)
    assert.equal((await commands.run('id -un', { user: 'root' })).exitCode, 0)
    if (buildsTemplates) { // otherwise the root is read-only, and has no place for sudo
      assert.equal((await commands.run('sudo id -u; sudo -u nobody id -un; echo in | sudo tr a-z A-Z; cd /usr; sudo pwd')).stdout, '0\nnobody\nIN\n/usr\n')
      assert.equal((await commands.run('sudo sh -c "echo x > /opt/of-root"; sudo -E env | grep -c ^SUDO_USER=user; stat -c %U /opt/of-root')).stdout, '1\nroot\n')
      await assert.rejects(commands.run('sudo sh -c "exit 7"'), (err) => err instanceof CommandExitError && err.exitCode === 7)
      await assert.rejects(commands.run('sudo sleep 9876', { timeoutMs: 3_000 }), TimeoutError)
      await until(async () => (await commands.run('pgrep -fc "[s]leep 9876" || true')).stdout === '0\n')
    }
    assert.equal((await commands.run('echo $FROM $BOTH $OWN', { envs: { OWN: 'own', BOTH: 'own' } })).stdout, 'sandbox own own\n')
    assert.equal((await commands.run('echo $E2B_SANDBOX $E2B_SANDBOX_ID $E2B_TEMPLATE_ID')).stdout, `true ${sandbox.sandboxId} code-interpreter-v1\n`)
    assert.equal((await commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
    const seen = { stdout: '', stderr: '' }
    const both = await commands.run('echo out; echo err >&2', { onStdout: (d) => { seen.stdout += d }, onStderr: (d) => { seen.stderr += d } })
    assert.deepEqual({ ...both }, { exitCode: 0, stdout: 'out\n', stderr: 'err\n', error: both.error })
    assert.deepEqual(seen, { stdout: 'out\n', stderr: 'err\n' })
    await assert.rejects(commands.run('echo before; exit 3'), (err) => err instanceof CommandExitError && err.exitCode === 3 && err.stdout === 'before\n')
    await assert.rejects(commands.run('true', { cwd: '/no/such/directory' }), NotFoundError)
    await assert.rejects(commands.run('true', { user: 'nobody-here' }), InvalidArgumentError)
    await assert.rejects(commands.run('sleep 20', { timeoutMs: 300 }), TimeoutError)
    assert.equal((await commands.run('echo granted', { timeoutMs: 24 * 3600_000 })).stdout, 'granted\n')
    const big = await commands.run('head -c 5000000 /dev/zero | tr "\\0" x')
    assert.equal(big.stdout.length, 5_000_000)
  })

  test('commands in the background', async () => {
    const { commands } = sandbox
    const cat = await commands.run('cat; echo end', { background: true, stdin: true })
    await commands.sendStdin(cat.pid, 'by the service\n')
    await cat.sendStdin('by the handle\n')
    await until(() => cat.stdout === 'by the service\nby the handle\n')
    await commands.closeStdin(cat.pid)
    assert.equal((await cat.wait()).stdout, 'by the service\nby the handle\nend\n')

    const loop = await commands.run('echo begun; while :; do echo tick; sleep 0.05; done', { background: true, envs: { MARK: 'm' } })
    const listed = (await commands.list()).find((p) => p.pid === loop.pid)
    assert.equal(listed.cmd, '/bin/bash')
    assert.deepEqual(listed.args.slice(0, 2), ['-l', '-c'])
    assert.equal(listed.envs.MARK, 'm')
    await loop.disconnect()
    let ticks = ''
    const again = await commands.connect(loop.pid, { onStdout: (d) => { ticks += d } })
    await until(() => ticks.includes('tick'))
    assert.equal(await commands.kill(loop.pid), true)
    await assert.rejects(again.wait(), CommandExitError)
    assert.equal(await commands.kill(loop.pid), false)
    await assert.rejects(commands.connect(999_999), NotFoundError)

    const killed = await commands.run('sleep 60', { background: true })
    assert.equal(await killed.kill(), true)
    await assert.rejects(killed.wait(), CommandExitError)
  })

  test('a process goes on without a client', async () => {
    await sandbox.commands.run('(for i in 1 2 3 4 5 6 7 8; do echo $i >> ticks; sleep 0.05; done) > /dev/null 2>&1 &')
    await until(async () => (await sandbox.files.exists('ticks')) && (await sandbox.files.read('ticks')).endsWith('8\n'))
  })

  test('terminals', async () => {
    const { pty } = sandbox
    let shown = ''
    const onData = (d) => { shown += new TextDecoder().decode(d) }
    const shell = await pty.create({ cols: 81, rows: 25, onData, envs: { PS1: '> ' }, cwd: '/tmp' })
    await pty.sendInput(shell.pid, new TextEncoder().encode('stty size; pwd; echo $((6*7))-done\n'))
    await until(() => shown.includes('42-done') && shown.includes('25 81') && shown.includes('/tmp'))
    await pty.resize(shell.pid, { cols: 100, rows: 30 })
    await pty.sendInput(shell.pid, new TextEncoder().encode('stty size\n'))
    await until(() => shown.includes('30 100'))
    await shell.disconnect()
    let later = ''
    const again = await pty.connect(shell.pid, { onData: (d) => { later += new TextDecoder().decode(d) } })
    await pty.sendInput(shell.pid, new TextEncoder().encode('echo again-$((1+1))\n'))
    await until(() => later.includes('again-2'))
    assert.equal(await pty.kill(shell.pid), true)
    await assert.rejects(again.wait(), CommandExitError)
  })

  test('files', async () => {
    const { files } = sandbox
    const dir = 'files-' + crypto.randomUUID()
    const info = await files.write(`${dir}/a.txt`, 'text é')
    assert.equal(info.name, 'a.txt')
    assert.equal(info.type, FileType.FILE)
    assert.ok(info.path.endsWith(`/${dir}/a.txt`), info.path)
    assert.equal(await files.read(`${dir}/a.txt`), 'text é')
    assert.deepEqual(await files.read(`${dir}/a.txt`, { format: 'bytes' }), new TextEncoder().encode('text é'))
    assert.equal(await (await files.read(`${dir}/a.txt`, { format: 'blob' })).text(), 'text é')
    assert.equal(await new Response(await files.read(`${dir}/a.txt`, { format: 'stream' })).text(), 'text é')
    assert.equal(await files.read(`${dir}/a.txt`, { gzip: true }), 'text é')
    await files.write(`${dir}/empty`, '')
    const metadata = { author: 'a', note: 'two words' }
    if (keepsMetadata) {
      assert.deepEqual((await files.write(`${dir}/noted`, 'text', { metadata })).metadata, metadata)
      assert.deepEqual((await files.getInfo(`${dir}/noted`)).metadata, metadata)
      assert.deepEqual((await files.rename(`${dir}/noted`, `${dir}/noted-2`)).metadata, metadata)
      assert.deepEqual((await files.list(dir)).find((e) => e.name === 'noted-2').metadata, metadata)
      assert.equal((await files.write(`${dir}/noted-2`, 'text', { useOctetStream: true })).metadata, undefined)
      assert.equal((await files.getInfo(`${dir}/noted-2`)).metadata, undefined)
    } else {
      await assert.rejects(files.write(`${dir}/noted`, 'text', { metadata }), message(501))
      assert.equal(await files.exists(`${dir}/noted`), false)
    }
    await assert.rejects(files.write(`${dir}/noted`, 'text', { metadata: { key: 'x'.repeat(5000) } }), InvalidArgumentError)
    assert.equal(await files.read(`${dir}/empty`), '')

    const bytes = crypto.getRandomValues(new Uint8Array(60_000))
    await files.write(`${dir}/buffer`, bytes.buffer)
    await files.write(`${dir}/blob`, new Blob([bytes]))
    await files.write(`${dir}/stream`, new Blob([bytes]).stream())
    await files.write(`${dir}/gzip`, new Blob([bytes]), { gzip: true })
    await files.write(`${dir}/octets`, new Blob([bytes]), { useOctetStream: true })
    for (const name of ['buffer', 'blob', 'stream', 'gzip', 'octets']) {
      assert.deepEqual(await files.read(`${dir}/${name}`, { format: 'bytes' }), bytes, name)
    }
    const many = await files.write([{ path: `${dir}/m/1`, data: 'one' }, { path: `${dir}/m/2`, data: 'two' }])
    assert.deepEqual(many.map((f) => f.name), ['1', '2'])
    await files.writeFiles([{ path: `${dir}/m/3`, data: 'three' }, { path: `${dir}/m/4`, data: new Blob(['four']).stream() }])
    assert.equal(await files.read(`${dir}/m/2`) + (await files.read(`${dir}/m/3`)) + (await files.read(`${dir}/m/4`)), 'twothreefour')
    const large = new Uint8Array(20 << 20).fill(7)
    await files.write(`${dir}/large`, new Blob([large]))
    assert.equal((await files.getInfo(`${dir}/large`)).size, large.length)
    assert.equal(Buffer.compare(await files.read(`${dir}/large`, { format: 'bytes' }), large), 0)

    assert.equal(await files.makeDir(`${dir}/sub/deep`), true)
    assert.equal(await files.makeDir(`${dir}/sub/deep`), false)
    assert.deepEqual((await files.list(`${dir}/m`)).map((e) => e.name), ['1', '2', '3', '4'])
    const deep = await files.list(dir, { depth: 2 })
    assert.ok(deep.some((e) => e.path.endsWith('/sub/deep') && e.type === FileType.DIR))
    await assert.rejects(files.list(dir, { depth: 0 }), InvalidArgumentError)
    await assert.rejects(files.list(`${dir}/none`), FileNotFoundError)
    const got = await files.getInfo(`${dir}/a.txt`)
    assert.equal(got.type, FileType.FILE)
    assert.equal(got.size, 7)
    assert.equal(got.mode, 0o644)
    assert.equal(got.permissions, '-rw-r--r--')
    assert.ok(got.owner && got.group && Math.abs(got.modifiedTime - Date.now()) < 60_000)
    await sandbox.commands.run(`ln -s a.txt ${dir}/link`)
    const link = await files.getInfo(`${dir}/link`)
    assert.equal(link.symlinkTarget, info.path)
    assert.equal(link.type, FileType.FILE)
    assert.deepEqual((await files.list(dir)).find((e) => e.name === 'link'), link)
    assert.equal(await files.exists(`${dir}/a.txt`), true)
    assert.equal((await files.rename(`${dir}/a.txt`, `${dir}/b.txt`)).name, 'b.txt')
    assert.equal(await files.exists(`${dir}/a.txt`), false)
    assert.equal(await files.read(`${dir}/b.txt`), 'text é')
    await files.remove(`${dir}/b.txt`)
    await assert.rejects(files.read(`${dir}/b.txt`), FileNotFoundError)
    await assert.rejects(files.getInfo(`${dir}/b.txt`), FileNotFoundError)
    await files.remove(`${dir}/b.txt`)
    await assert.rejects(files.write(`${dir}/sub`, 'x'), InvalidArgumentError)
    await files.remove(dir)
    assert.equal(await files.exists(dir), false)

    // Where the user may not write, the API may, and the user owns what it makes.
    const roots = `/run/${dir}`
    await files.write(`${roots}/of/user`, 'text')
    assert.equal((await files.getInfo(`${roots}/of/user`)).owner, (await files.getInfo(roots)).owner)
    assert.equal((await sandbox.commands.run(`echo more >> ${roots}/of/user && cat ${roots}/of/user`)).stdout, 'textmore\n')
    await files.remove(roots)
    assert.equal(await files.exists(roots), false)
  })

  test('watching', async () => {
    const { files } = sandbox
    const dir = 'watched-' + crypto.randomUUID()
    await files.makeDir(`${dir}/sub`)
    const events = []
    const exits = []
    const handle = await files.watchDir(dir, (e) => { events.push(`${e.type} ${e.name}`) }, { onExit: (err) => { exits.push(err) } })
    const below = []
    const recursive = await files.watchDir(dir, (e) => { below.push(`${e.type} ${e.name}`) }, { recursive: true, timeoutMs: 0 })
    await sandbox.commands.run(`cd ${dir} && echo x > f && chmod 600 f && mv f g && rm g && echo x > sub/h`)
    await until(() => ['create f', 'write f', 'chmod f', 'rename f', 'create g', 'remove g'].every((e) => events.includes(e)))
    await until(() => below.includes('create sub/h'))
    assert.ok(!events.includes('create sub/h'))
    // Writes of this API are changes of the file itself, with its entry.
    const written = []
    const withEntries = await files.watchDir(dir, (e) => { written.push(e) }, { includeEntry: true, allowNetworkMounts: true })
    for (const text of ['first', 'x'.repeat(1 << 20)]) {
      await files.write(`${dir}/api`, text)
      await until(() => written.some((e) => e.type === 'write' && e.entry?.size === text.length))
    }
    assert.deepEqual([...new Set(written.map((e) => e.name))], ['api'])
    assert.deepEqual([...new Set(written.map((e) => e.type))], ['create', 'chmod', 'write'])
    assert.ok(written.every((e) => e.entry.path.endsWith(`/${dir}/api`) && e.entry.type === FileType.FILE))
    await withEntries.stop()
    await handle.stop()
    await recursive.stop()
    await until(() => exits.length === 1)
    await assert.rejects(files.watchDir(`${dir}/none`, () => {}), FileNotFoundError)
  })

  test('signed addresses of files', async () => {
    const { files } = sandbox
    await files.write('signed.txt', 'signed')
    const url = await sandbox.downloadUrl('signed.txt')
    const answer = await fetch(url)
    assert.equal(await answer.text(), 'signed')
    assert.match(answer.headers.get('content-disposition'), /attachment/)
    assert.equal(await (await fetch(await sandbox.downloadUrl('signed.txt', { useSignatureExpiration: 60, user: 'user' }))).text(), 'signed')
    const expired = await fetch(await sandbox.downloadUrl('signed.txt', { useSignatureExpiration: -60 }))
    assert.deepEqual(await expired.json(), { code: 401, message: 'signature is already expired' })
    assert.equal(expired.status, 401)
    assert.equal((await fetch(url.replace('signed.txt', 'other.txt'))).status, 401)
    assert.equal((await fetch(url.replace(/signature=[^&]*/, 'signature=v1_x'))).status, 401)
    assert.equal((await fetch(url, { method: 'POST', body: new FormData() })).status, 401)
    const form = new FormData()
    form.append('file', new Blob(['uploaded']), 'ignored')
    assert.equal((await fetch(await sandbox.uploadUrl('up.txt', { useSignatureExpiration: 60 }), { method: 'POST', body: form })).status, 200)
    assert.equal(await files.read('up.txt'), 'uploaded')
    const named = new FormData()
    named.append('file', new Blob(['named']), 'by-the-form.txt')
    assert.equal((await fetch(await sandbox.uploadUrl(), { method: 'POST', body: named })).status, 200)
    assert.equal(await files.read('by-the-form.txt'), 'named')
  })

  test('git', { skip: process.env.E2B_TEST_GIT === 'no' }, async () => {
    const { git } = sandbox
    const repo = '/tmp/repo-' + crypto.randomUUID()
    await git.init(repo, { initialBranch: 'main' })
    await git.configureUser('A', 'a@example.com', { scope: 'local', path: repo })
    await sandbox.files.write(`${repo}/f`, 'x')
    await git.add(repo)
    await git.commit(repo, 'first')
    assert.equal((await git.status(repo)).currentBranch, 'main')
    await git.createBranch(repo, 'next')
    assert.ok((await git.branches(repo)).branches.includes('next'))
    await git.checkoutBranch(repo, 'main')
    await git.deleteBranch(repo, 'next')
    assert.deepEqual((await git.branches(repo)).branches, ['main'])
    await git.setConfig('core.editor', 'true', { scope: 'local', path: repo })
    assert.equal(await git.getConfig('core.editor', { scope: 'local', path: repo }), 'true')
    await sandbox.files.write(`${repo}/f`, 'y')
    await git.add(repo, { files: ['f'] })
    await git.reset(repo, { mode: 'mixed' })
    assert.equal((await git.status(repo)).hasStaged, false)
    await git.restore(repo, { paths: ['f'] })
    assert.equal(await sandbox.files.read(`${repo}/f`), 'x')

    // Without a network, another directory is the remote.
    await git.init(`${repo}.git`, { bare: true, initialBranch: 'main' })
    await git.remoteAdd(repo, 'origin', `file://${repo}.git`)
    assert.equal(await git.remoteGet(repo, 'origin'), `file://${repo}.git`)
    await git.push(repo, { remote: 'origin', branch: 'main', setUpstream: true })
    await git.clone(`file://${repo}.git`, { path: `${repo}-2` })
    assert.equal(await sandbox.files.read(`${repo}-2/f`), 'x')
    await git.commit(repo, 'second', { allowEmpty: true })
    await git.push(repo)
    await git.pull(`${repo}-2`)
    assert.match((await sandbox.commands.run(`git -C ${repo}-2 log -1 --format=%s`)).stdout, /^second/)
    await git.dangerouslyAuthenticate({ username: 'a', password: 'b', host: 'example.com' })
    assert.match(await sandbox.files.read('.git-credentials'), /example.com/)
  })

  describe('code', { skip: !python, concurrency: true }, () => {
    test('results, output, errors', async () => {
      const seen = []
      const note = (kind) => (v) => { seen.push(kind); return v }
      const execution = await sandbox.runCode('import sys\nprint("out")\nprint("err", file=sys.stderr)\nx = 20\nx + 22', {
        onStdout: note('stdout'), onStderr: note('stderr'), onResult: note('result'), onError: note('error'),
      })
      assert.equal(execution.text, '42')
      assert.equal(execution.results[0].isMainResult, true)
      assert.deepEqual(execution.results[0].formats(), [])
      assert.equal(execution.logs.stdout.join(''), 'out\n')
      assert.equal(execution.logs.stderr.join(''), 'err\n')
      assert.ok(execution.executionCount >= 1)
      assert.deepEqual([...seen].sort(), ['result', 'stderr', 'stdout'])
      assert.equal((await sandbox.runCode('x + 1')).text, '21')
      const failed = await sandbox.runCode('1/0', { onError: note('error') })
      assert.equal(failed.error.name, 'ZeroDivisionError')
      assert.match(failed.error.traceback, /1\/0/)
      assert.equal(seen.at(-1), 'error')
      const html = await sandbox.runCode('class H:\n  def _repr_html_(self): return "<b>h</b>"\nH()')
      assert.equal(html.results[0].html, '<b>h</b>')
      assert.ok(html.results[0].formats().includes('html'))
      assert.deepEqual(JSON.parse(JSON.stringify(html)).results[0].html, '<b>h</b>')
      assert.equal((await sandbox.runCode('import os; (os.environ["FROM"], os.environ["OWN"])', { envs: { OWN: 'own' } })).text, "('sandbox', 'own')")
      assert.equal((await sandbox.runCode('import os; os.getcwd() == os.path.expanduser("~")')).text, 'True')
      await assert.rejects(sandbox.runCode('import time; time.sleep(30)', { timeoutMs: 300 }), TimeoutError)
      assert.equal((await sandbox.runCode('x')).text, '20')
    })

    test("IPython's syntax and results", async () => {
      assert.equal((await sandbox.runCode('"quoted"')).text, 'quoted')
      assert.deepEqual((await sandbox.runCode('{"a": [1, None]}')).results[0].json, { a: [1, null] })
      assert.equal((await sandbox.runCode('\n        word = "w"\n        !echo {word}\n        ')).logs.stdout.join(''), 'w\n')
      assert.equal((await sandbox.runCode('%%bash\necho $((6*7))')).logs.stdout.join(''), '42\n')
      assert.equal((await sandbox.runCode('import sys; sys.exit(3)')).error.name, 'SystemExit')
    })

    test('contexts', async () => {
      const languages = (await sandbox.listCodeContexts()).map((c) => c.language)
      assert.deepEqual(languages.filter((l) => l === 'python' || l === 'javascript').slice(0, 1), ['python'])
      const context = await sandbox.createCodeContext({ language: 'python', cwd: '/tmp' })
      assert.equal(context.language, 'python')
      assert.equal(context.cwd, '/tmp')
      await sandbox.runCode('y = 1', { context })
      assert.equal((await sandbox.runCode('import os; (y, os.getcwd())', { context })).text, "(1, '/tmp')")
      assert.equal((await sandbox.runCode('y')).error.name, 'NameError')
      const last = (await sandbox.listCodeContexts()).at(-1)
      assert.deepEqual([last.id, last.cwd], [context.id, '/tmp'])
      await sandbox.restartCodeContext(context)
      assert.equal((await sandbox.runCode('y', { context })).error.name, 'NameError')
      await sandbox.removeCodeContext(context.id)
      await assert.rejects(sandbox.runCode('1', { context }), NotFoundError)
      await assert.rejects(sandbox.removeCodeContext(context), NotFoundError)
      await assert.rejects(sandbox.createCodeContext({ language: 'cobol' }), message(400))
      await assert.rejects(sandbox.runCode('1', { context, language: 'python' }), InvalidArgumentError)
      assert.equal((await sandbox.runCode('echo $((6*7))', { language: 'bash' })).logs.stdout.join(''), '42\n')
    })
  })
})

// What is public in the SDKs' sources by mistake, and the gateway of MCP, which is
// refused when a sandbox is made.
const internal = [
  'jupyterUrl', 'getJupyterRequestUrl', 'includeDiagnostics', 'handleRequestError', 'resolveApiOpts', 'resolveOpts', 'fileUrl',
  'createSandbox', 'forkSandbox', 'connectSandbox', 'getFullInfo', 'getMcpUrl', 'getMcpToken', 'supportsStdinClose', 'start',
  'runGit', 'runShell', 'getRemoteUrl', 'resolveRemoteName', 'withRemoteCredentials', 'hasUpstream',
]
test('every method of a sandbox is used here', () => {
  const text = readFileSync(new URL(import.meta.url), 'utf8')
  const sandbox = new Sandbox({ sandboxId: 'sbx_none', apiKey: other, envdVersion: '0.5.7', sandboxDomain: 'none.invalid' })
  const { prototype } = Object.getPrototypeOf(Sandbox)
  for (const object of [Sandbox.prototype, prototype, Sandbox, Object.getPrototypeOf(Sandbox), ...[sandbox.files, sandbox.commands, sandbox.pty, sandbox.git].map(Object.getPrototypeOf)]) {
    for (const name of Object.getOwnPropertyNames(object)) {
      if (['constructor', 'length', 'name', 'prototype', ...internal].includes(name) || typeof Object.getOwnPropertyDescriptor(object, name).value !== 'function') continue
      assert.ok(text.includes(`.${name}(`), `${name} is not used`)
    }
  }
})

describe('volumes', { concurrency: true, timeout: 240_000 }, () => {
  const { Volume, VolumeError, VolumeNotFoundError, VolumePathNotFoundError } = e2b
  const named = () => `v-${crypto.randomUUID()}`

  test('create, connect, list, info, destroy', async () => {
    const name = named()
    const volume = await Volume.create(name)
    assert.equal(volume.name, name)
    await assert.rejects(Volume.create(name), VolumeError)
    await assert.rejects(Volume.create('no spaces'), VolumeError)
    const again = await Volume.connect(volume.volumeId)
    assert.equal(again.name, name)
    await volume.writeFile('/a', 'text')
    assert.equal(await again.readFile('/a'), 'text')
    assert.ok((await Volume.list()).some((v) => v.volumeId === volume.volumeId && v.name === name))
    assert.equal((await Volume.getInfo(volume.volumeId)).token, volume.token)
    assert.ok(!(await Volume.list({ apiKey: other })).some((v) => v.name === name))
    await assert.rejects(Volume.getInfo(volume.volumeId, { apiKey: other }), VolumeNotFoundError)
    assert.equal(await Volume.destroy(volume.volumeId, { apiKey: other }), false)
    assert.equal(await Volume.destroy(volume.volumeId), true)
    assert.equal(await Volume.destroy(volume.volumeId), false)
    await assert.rejects(Volume.connect(volume.volumeId), VolumeNotFoundError)
  })

  test('files', async () => {
    const volume = await Volume.create(named())
    try {
      const made = await volume.writeFile('/dir/a.txt', 'hello', { mode: 0o600, uid: 1000, gid: 1000 })
      assert.deepEqual([made.name, made.type, made.path, made.size, made.mode, made.uid, made.gid], ['a.txt', 'file', '/dir/a.txt', 5, 0o600, 1000, 1000])
      assert.ok(Math.abs(made.mtime - Date.now()) < 60_000)
      assert.equal(await volume.readFile('/dir/a.txt'), 'hello')
      assert.deepEqual(await volume.readFile('/dir/a.txt', { format: 'bytes' }), new TextEncoder().encode('hello'))
      assert.equal(await (await volume.readFile('/dir/a.txt', { format: 'blob' })).text(), 'hello')
      await volume.writeFile('/empty', '')
      assert.equal(await volume.readFile('/empty'), '')
      // More than a request in memory may have.
      const large = new Uint8Array(24 << 20).fill(7)
      await volume.writeFile('/large', new Blob([large]).stream())
      let size = 0
      for await (const part of await volume.readFile('/large', { format: 'stream' })) size += part.length
      assert.equal(size, large.length)
      await assert.rejects(volume.writeFile('/dir/a.txt', 'x', { force: false }), VolumeError)
      await volume.writeFile('/dir/a.txt', 'more', { force: true })
      assert.equal((await volume.updateMetadata('/dir/a.txt', { mode: 0o755 })).mode, 0o755)
      await volume.makeDir('/new')
      await assert.rejects(volume.makeDir('/new', { force: false }), VolumeError)
      await volume.makeDir('/new/er/est', { force: true })
      assert.deepEqual((await volume.list('/')).map((f) => f.path), ['/dir', '/empty', '/large', '/new'])
      assert.deepEqual((await volume.list('/new', { depth: 2 })).map((f) => f.path), ['/new/er', '/new/er/est'])
      assert.equal(await volume.exists('/new/er'), true)
      await volume.remove('/new')
      assert.equal(await volume.exists('/new/er'), false)
      for (const method of ['readFile', 'list', 'remove', 'getInfo']) await assert.rejects(volume[method]('/no'), VolumePathNotFoundError)
      await assert.rejects(volume.updateMetadata('/no', { mode: 0o644 }), VolumePathNotFoundError)
      const stolen = new Volume(volume.volumeId, volume.name, 'x')
      await assert.rejects(stolen.readFile('/dir/a.txt'), e2b.AuthenticationError)
    } finally {
      await Volume.destroy(volume.volumeId)
    }
  })

  test('in sandboxes', async () => {
    const volume = await Volume.create(named())
    const made = []
    const sandbox = async (path) => {
      made.push(await e2b.Sandbox.create({ volumeMounts: { [path]: volume } }))
      return made.at(-1)
    }
    try {
      await volume.writeFile('/from/outside', 'o')
      const one = await sandbox('/mnt/my-data')
      assert.deepEqual((await one.getInfo()).volumeMounts, [{ name: volume.name, path: '/mnt/my-data' }])
      assert.equal((await one.commands.run('cat /mnt/my-data/from/outside && echo i > /mnt/my-data/inside && stat -c %U /mnt/my-data/inside')).stdout, 'ouser\n')
      assert.equal(await one.files.read('/mnt/my-data/from/outside'), 'o')
      await one.files.write('/mnt/my-data/by/files', 'f')
      assert.deepEqual((await one.files.list('/mnt/my-data')).map((f) => f.name).sort(), ['by', 'from', 'inside'])
      assert.equal(await volume.readFile('/inside'), 'i\n')
      assert.equal(await volume.readFile('/by/files'), 'f')
      const two = await sandbox('/data')
      assert.equal(await two.files.read('/data/inside'), 'i\n')
      await assert.rejects(Volume.destroy(volume.volumeId), VolumeError, 'a volume in use')
      await one.files.write('/data/x', 'the first volume is there, too')
      assert.equal(await volume.readFile('/x'), 'the first volume is there, too')
      await assert.rejects(sandbox('/etc'), message(400))
      await assert.rejects(e2b.Sandbox.create({ volumeMounts: { '/mnt/x': 'no-such-volume' } }), message(404))
      await assert.rejects(e2b.Sandbox.create({ apiKey: other, volumeMounts: { '/mnt/x': volume } }), message(404))
    } finally {
      await Promise.all(made.map((s) => s.kill()))
      assert.equal(await Volume.destroy(volume.volumeId), true)
    }
  })

  test('several in a sandbox', async () => {
    const volumes = [await Volume.create(named()), await Volume.create(named()), await Volume.create(named())]
    const [a, b, c] = volumes
    const mounts = { '/mnt/a': a, '/opt/deep/b': b, '/home/user/c': c }
    const sandbox = await e2b.Sandbox.create({ volumeMounts: mounts })
    try {
      const want = Object.entries(mounts).map(([path, v]) => ({ name: v.name, path }))
      assert.deepEqual((await sandbox.getInfo()).volumeMounts, want)
      await b.writeFile('/from/outside', 'o')
      const { stdout } = await sandbox.commands.run('cat /opt/deep/b/from/outside && for d in /mnt/a /opt/deep/b /home/user/c; do echo $d > $d/inside; stat -c %U $d/inside; done')
      assert.equal(stdout, 'ouser\nuser\nuser\n')
      await sandbox.files.write('/home/user/c/by/files', 'f')
      assert.equal(await c.readFile('/by/files'), 'f')
      for (const [path, v] of Object.entries(mounts)) assert.equal(await v.readFile('/inside'), `${path}\n`)
      for (const v of volumes) await assert.rejects(Volume.destroy(v.volumeId), VolumeError, 'a volume in use')
      await assert.rejects(e2b.Sandbox.create({ volumeMounts: { '/mnt/a': a, '/mnt/a/b': b } }), message(400))
    } finally {
      await sandbox.kill()
    }
    for (const v of volumes) {
      assert.equal(await v.readFile('/inside'), `${Object.keys(mounts)[volumes.indexOf(v)]}\n`)
      assert.equal(await Volume.destroy(v.volumeId), true)
    }
  })
})
