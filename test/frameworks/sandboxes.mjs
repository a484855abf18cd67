// What the tests of all frameworks share.
import assert from 'node:assert/strict'
import { Sandbox } from 'e2b'

// none fails if the server has a sandbox with the metadata.
export async function none(metadata) {
  const left = await Sandbox.list({ query: { metadata, state: ['running', 'paused'] } }).nextItems()
  assert.deepEqual(left.map((s) => s.sandboxId), [], 'the framework left sandboxes')
}

// until waits for what another process does; the test's own timeout bounds it.
export async function until(what) {
  while (!(await what())) await new Promise((r) => setTimeout(r, 20))
}
