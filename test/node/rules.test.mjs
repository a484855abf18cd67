// Has E2B's SDK set headers in the requests of sandboxes (network.rules). The
// environment has the host of a server that returns nothing of a request
// (E2B_TEST_API, with its port), and the value (E2B_TEST_RULE). With
// E2B_TEST_SANDBOX, the sandbox was made by an earlier server, which has ended.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { test } from 'node:test'
import * as e2b from 'e2b'

const { E2B_TEST_API: api, E2B_TEST_RULE: value, E2B_TEST_SANDBOX: earlier, E2B_TEST_KEEP: keep } = process.env
const [host] = api.split(':')
const network = (headers) => ({
  denyOut: [e2b.ALL_TRAFFIC], allowOut: [api, `${host}:80`, process.env.E2B_TEST_ADDRESS],
  rules: headers ? { [api]: [{ transform: { headers } }] } : undefined,
})
// Each request has a path of its own, by which the server knows it.
const ask = async (sandbox, path, args = '') =>
  (await sandbox.commands.run(`curl -sS -m 20 -H 'Authorization: mine' ${args} https://${api}/${path}`)).stdout

test('rules', { skip: earlier, timeout: 240_000 }, async () => {
  const sandbox = await e2b.Sandbox.create({ network: network({ authorization: `Bearer ${value}`, 'X-Key': '${e2b.secrets.OPERATORS}' }), timeoutMs: 240_000 })
  assert.equal(await ask(sandbox, 'first'), 'hello /first\n')
  // Programs do not have the value, and nobody is told it.
  const env = await sandbox.commands.run('env; cat /proc/[0-9]*/environ | tr "\\0" "\\n"')
  assert.ok(!env.stdout.includes(value))
  const info = await sandbox.getInfo()
  assert.ok(!JSON.stringify(info).includes(value))
  // Another value, then none.
  await sandbox.updateNetwork(network({ Authorization: `Bearer next-${value}` }))
  assert.equal(await ask(sandbox, 'second'), 'hello /second\n')
  await sandbox.updateNetwork(network())
  assert.equal(await ask(sandbox, 'third'), 'hello /third\n')
  await sandbox.updateNetwork(network({ Authorization: `Bearer ${value}` }))
  const refuses = (what, status) => assert.rejects(what, (err) => {
    assert.ok(err.message.includes(status) && !err.message.includes(value), err.message)
    return true
  })
  await refuses(e2b.Sandbox.create({ network: { ...network(), rules: { 'other.example': [{ transform: { headers: { A: value } } }] } } }), '400')
  await refuses(e2b.Sandbox.create({ network: network({ Host: value }) }), '400')
  await refuses(e2b.Sandbox.create({ network: network({ 'X-Key': value }) }), 'OPERATORS')
  await refuses(sandbox.updateNetwork(network({ 'Transfer-Encoding': value })), '400')
  await sandbox.pause() // so that it outlives the server
  writeFileSync(keep, sandbox.sandboxId)
})

test('after a restart of the server', { skip: !earlier, timeout: 240_000 }, async () => {
  const sandbox = await e2b.Sandbox.connect(earlier)
  try {
    assert.equal(await ask(sandbox, 'restarted'), 'hello /restarted\n')
  } finally {
    await sandbox.kill()
  }
})
