// Builds templates with E2B's SDK as it comes from npm, against a Glovebox server,
// and makes sandboxes of them. The environment is as for e2b.test.mjs.
// E2B_TEST_IMAGE is an image that the server has, with a shell.
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { Sandbox, Template, waitForFile } from 'e2b'

const image = process.env.E2B_TEST_IMAGE
const other = process.env.E2B_OTHER_API_KEY
const url = process.env.E2B_API_URL
const text = (entries) => entries.map((e) => e.message).join('\n')
const api = (method, path, key = process.env.E2B_API_KEY, body) =>
  fetch(url + path, { method, headers: { 'X-API-KEY': key, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body) })

describe('templates', { timeout: 240_000 }, () => {
  let context
  before(() => {
    context = mkdtempSync(join(tmpdir(), 'templates-'))
    writeFileSync(join(context, 'hello.txt'), 'hello')
    mkdirSync(join(context, 'app', 'deep'), { recursive: true })
    writeFileSync(join(context, 'app', 'server.sh'), '#!/bin/sh\necho started by $(id -un) in $PWD with $GREETING\nsleep 0.3\necho ready > /tmp/ready\nexec sleep 1000\n', { mode: 0o755 })
    writeFileSync(join(context, 'app', 'deep', 'data'), 'data')
    writeFileSync(join(context, 'app', 'ignored'), 'no')
    writeFileSync(join(context, '.dockerignore'), 'app/ignored\n')
  })
  after(() => rmSync(context, { recursive: true }))

  test('build, status, logs, names and tags', async () => {
    const template = Template({ fileContextPath: context })
      .fromImage(image)
      .setEnvs({ GREETING: 'good day' })
      .setEnvs({ MORE: '$GREETING to you' })
      .copy('hello.txt', 'copied.txt')
      .copy('hello.txt', '/etc/', { user: 'root', mode: 0o600 })
      .copy('app', '/srv/app')
      .copy('*.txt', '/srv/texts/')
      .setWorkdir('/srv/work')
      .skipCache()
      .runCmd('echo "$MORE" > greeting; id -un >> greeting; pwd >> greeting; echo said to the log')
      .runCmd('id -u > /root-was-here', { user: 'root' })
      .makeDir('made')
      .makeSymlink('greeting', 'link')
      .setStartCmd('/srv/app/server.sh', waitForFile('/tmp/ready'))
    const seen = []
    const built = await Template.build(template, 'My-App:v1', { cpuCount: 1, memoryMB: 256, tags: ['stable'], onBuildLogs: (e) => seen.push(e) })
    assert.doesNotMatch(text(seen), /good day/)
    assert.match(text(seen), /FROM .*\n[^]*\[8\] RUN echo[^]*said to the log[^]*made the image/)
    const status = await Template.getBuildStatus(built)
    assert.equal(status.status, 'ready')
    assert.ok(status.logEntries.length > 5)
    const rest = await Template.getBuildStatus(built, { logsOffset: status.logEntries.length })
    assert.deepEqual(rest.logEntries, [])
    const later = await (await api('GET', `/templates/${built.templateId}/builds/${built.buildId}/logs?direction=backward&limit=1`)).json()
    assert.equal(later.logs.length, 1)

    assert.equal(await Template.exists('my-app:v1'), true)
    assert.equal(await Template.exists('my-app:v2'), false)
    assert.equal(await Template.exists('my-other-app'), false)
    assert.equal(await Template.exists('my-app:v1', { apiKey: other }), false)
    const tagged = await Template.assignTags('my-app:v1', ['latest', 'production'])
    assert.equal(tagged.buildId, built.buildId)
    assert.deepEqual(tagged.tags, ['latest', 'production'])
    await Template.removeTags('my-app', 'latest')
    assert.deepEqual((await Template.getTags(built.templateId)).map((t) => t.tag), ['production', 'stable', 'v1'])
    await assert.rejects(Template.getTags('my-app', { apiKey: other }))
    await assert.rejects(Template.assignTags('my-app:v9', 'x'))
    await assert.rejects(Template.assignTags('my-app:v1', ':bad'))

    const sandbox = await Sandbox.create('my-app:production', { timeoutMs: 60_000 })
    try {
      const info = await sandbox.getInfo()
      assert.equal(info.templateId, built.templateId)
      assert.equal(info.name, 'my-app')
      assert.equal(info.cpuCount, 1)
      assert.equal(info.memoryMB, 256)
      const run = async (cmd) => (await sandbox.commands.run(cmd)).stdout
      assert.equal(await run('cat greeting link'), 'good day to you\nuser\n/srv/work\n'.repeat(2))
      assert.equal(await run('pwd; id -un; echo $GREETING'), '/srv/work\nuser\ngood day\n')
      assert.equal(await run('cat /root-was-here ~/copied.txt /srv/app/deep/data'), '0\nhellodata')
      assert.equal(await run('stat -c "%a %U" /etc/hello.txt /home/user/copied.txt'), '600 root\n644 user\n')
      assert.equal(await run('ls /srv/app; ls /srv/texts; ls -d made'), 'deep\nserver.sh\nhello.txt\nmade\n')
      // The start command goes on, and its output is kept.
      assert.equal(await run('cat /tmp/start-command.log; ps | grep -c "[s]leep 1000"'), 'started by user in /srv/work with good day\n1\n')
      assert.equal(await sandbox.files.read('/tmp/ready'), 'ready\n')
    } finally {
      await sandbox.kill()
    }
    await assert.rejects(Sandbox.create('my-app:production', { apiKey: other }))
    await assert.rejects(Sandbox.create('my-app'), /no ready build with the tag default/)

    const list = await (await api('GET', '/templates')).json()
    const mine = list.find((t) => t.templateID === built.templateId)
    assert.deepEqual([mine.names, mine.buildStatus, mine.spawnCount, mine.buildID], [['my-app'], 'ready', 1, built.buildId])
    assert.deepEqual(await (await api('GET', '/v2/templates', other)).json(), [])
    const one = await (await api('GET', '/templates/my-app')).json()
    assert.deepEqual(one.builds.map((b) => b.status), ['ready'])

    // Another template on top of it, and then without it.
    const next = Template().fromTemplate('my-app:v1').setUser('root').runCmd('cat greeting > /on-top').setReadyCmd('test -e /on-top')
    await Template.build(next, 'on-top')
    assert.equal((await api('DELETE', `/templates/${built.templateId}`, other)).status, 404)
    assert.equal((await api('DELETE', `/templates/${built.templateId}`)).status, 204)
    assert.equal(await Template.exists('my-app:v1'), false)
    const above = await Sandbox.create('on-top', { timeoutMs: 60_000 })
    try {
      assert.equal((await above.commands.run('id -un; cat /on-top')).stdout, 'root\ngood day to you\nuser\n/srv/work\n')
      await above.files.write('/root/of-root', 'x')
      assert.equal((await above.files.getInfo('/root/of-root')).owner, 'root')
    } finally {
      await above.kill()
    }
    assert.equal((await api('DELETE', '/templates/on-top')).status, 204)
  })

  test('a Dockerfile, and a second build', async () => {
    const first = await Template.build(Template({ fileContextPath: context }).fromDockerfile(`FROM ${image}\nENV A=1\nRUN echo first > /version\nCOPY hello.txt /srv/\nWORKDIR /srv`), 'docker')
    const bad = Template().fromImage(image).runCmd('echo not this; exit 3')
    await assert.rejects(Template.build(bad, 'docker'), /failed: .*3/)
    let sandbox = await Sandbox.create('docker', { timeoutMs: 60_000 })
    assert.equal((await sandbox.commands.run('cat /version hello.txt; pwd')).stdout, 'first\nhello/srv\n')
    await sandbox.kill()
    const second = await Template.build(Template().fromImage(image).runCmd('echo second > /version', { user: 'root' }), 'docker')
    assert.equal(second.templateId, first.templateId)
    sandbox = await Sandbox.create('docker', { timeoutMs: 60_000 })
    assert.equal((await sandbox.commands.run('cat /version')).stdout, 'second\n')
    await sandbox.kill()
    const one = await (await api('GET', '/templates/docker')).json()
    assert.deepEqual(one.builds.map((b) => b.status), ['ready', 'error', 'ready'])
    await api('DELETE', '/templates/docker')
  })

  test('builds that fail', async () => {
    const reason = async (template, name = 'bad') => {
      const built = await Template.buildInBackground(template, name)
      for (;;) {
        const status = await Template.getBuildStatus(built)
        if (status.status === 'error') return status.reason
        assert.notEqual(status.status, 'ready')
        await new Promise((r) => setTimeout(r, 50))
      }
    }
    let why = await reason(Template().fromImage('no-such-image.invalid/x:1'))
    assert.equal(why.step, 'base')
    assert.match(why.message, /no-such-image.invalid\/x:1\\?" is not here/)
    why = await reason(Template().fromImage(image).runCmd('true').runCmd('echo reason >&2; exit 7'))
    assert.equal(why.step, '2')
    assert.match(why.message, /7/)
    // A bomb of processes ends with its build.
    why = await reason(Template().fromImage(image).runCmd('for i in $(seq 3000); do sleep 1000 & done; exit 9'))
    assert.match(why.message, /too_many_processes/)
    symlinkSync('/etc/passwd', join(context, 'app', 'out'))
    why = await reason(Template({ fileContextPath: context }).fromImage(image).copy('app', '/srv', { resolveSymlinks: false }))
    assert.equal(why.step, '1')
    assert.match(why.message, /link .*out.* leads out of the files/)
    why = await reason(Template().fromImage(image).setStartCmd('echo cannot start; exit 4', 'false'))
    assert.equal(why.step, 'finalize')
    assert.match(why.message, /start command .* failed: cannot start\s+status 4/)
    const registry = Template().fromImage('private.invalid/x', { username: 'u', password: 'p' })
    await assert.rejects(Template.build(registry, 'bad'), /fromImageRegistry/)
    await assert.rejects(Template.build(Template().fromImage(image), 'Not a name'), /not the name of a template/)
    assert.equal((await api('DELETE', '/templates/bad')).status, 204)
  })
})
