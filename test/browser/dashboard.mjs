// Drives Chromium through the dashboard of a server with real sandboxes.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { check, cli, done, open, rolesOf, serve, step } from './common.mjs';
import { show } from './host.mjs';

const tokens = { operator: cli('token', 'create', 'operator', '--scope', 'admin'), alice: cli('token', 'create', 'alice'), bob: cli('token', 'create', 'bob') };
let server = await serve('127.0.0.1:0', { config: 'audit:\n  enabled: true\n', flags: ['--allow-network', 'example.com'] });
const base = server.url;

// ask sends a request as an MCP client.
let calls = 0;
async function ask(token, method, name, params) {
  const version = '2026-07-28';
  const res = await fetch(base + '/mcp', {
    method: 'POST',
    headers: {
      'Content-Type': 'application/json', Accept: 'application/json, text/event-stream', Authorization: 'Bearer ' + token,
      'Mcp-Protocol-Version': version, 'Mcp-Method': method, ...(name && { 'Mcp-Name': name }),
    },
    body: JSON.stringify({
      jsonrpc: '2.0', id: ++calls, method,
      params: { ...params, _meta: { 'io.modelcontextprotocol/protocolVersion': version, 'io.modelcontextprotocol/clientCapabilities': {} } },
    }),
  });
  const text = await res.text();
  const answer = JSON.parse(text.startsWith('{') ? text : text.split('\n').filter((l) => l.startsWith('data: ')).pop().slice(6));
  assert(answer.result, `${name}: ${text}`);
  return answer.result;
}

// call calls a tool, and returns the structured part of its result.
async function call(token, name, args) {
  const result = await ask(token, 'tools/call', name, { name, arguments: args });
  assert(result.structuredContent, JSON.stringify(result));
  return result.structuredContent;
}

const evil = '<script>alert(1)</script><img src=x onerror=alert(1)>';
const picture = `import zlib, struct
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
class Dot:
    def _repr_png_(self):
        return (b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 8, 8, 8, 0, 0, 0, 0))
            + chunk(b'IDAT', zlib.compress(b'\\0' * 72)) + chunk(b'IEND', b''))
Dot()`;
const coloured = await call(tokens.alice, 'run_code', {
  language: 'python',
  code: `print("\\x1b[31mred\\x1b[0m \\x1b]0;a title\\x07 \\x1b]8;;https://evil.example\\x07a link\\x1b]8;;\\x07 ${evil}")
open("<script>alert(1).html", "w").write("${evil}")
open("bytes", "wb").write(b"\\xff\\x00")`,
});
const box = coloured.sandbox_id;
const failed = await call(tokens.alice, 'run_code', { sandbox_id: box, language: 'python', code: 'def f(x):\n    return 1 / x\n\nf(0)' });
const drawn = await call(tokens.alice, 'run_code', { sandbox_id: box, language: 'python', code: picture });
const shown = `class Shown:
    def __init__(self, bundle): self.bundle = bundle
    def _repr_mimebundle_(self, *a, **k): return self.bundle
`;
const table = `{'text/html': "<table><tr><th>name</th><th>n</th></tr><tr><td>${evil.replaceAll('<', '&lt;')}</td><td>10</td></tr><tr><td>b</td><td>9</td></tr></table>"}`;
const chart = `{'text/plain': 'chart', 'application/vnd.glovebox.chart+json': {'type': 'bar', 'title': "${evil}", 'elements': [{'label': 'x', 'value': 3}, {'label': "${evil}", 'value': 5}]}}`;
const rich = await call(tokens.alice, 'run_code', { sandbox_id: box, language: 'python', code: `${shown}display(Shown(${table}))\ndisplay(Shown(${chart}))\n` });
const large = await call(tokens.alice, 'run_command', { sandbox_id: box, command: "head -c 100000000 /dev/zero | tr '\\0' x | fold -w 100" });
const web = await call(tokens.alice, 'create_sandbox', { name: 'web-app', network: 'example.com' });
await call(tokens.alice, 'run_command', { sandbox_id: web.sandbox_id, command: 'getent hosts refused.test; true' });
await call(tokens.alice, 'run_command', {
  sandbox_id: web.sandbox_id, service: true, name: 'page', ready: 'port:8000',
  command: 'mkdir -p site && cd site && printf "<h1>A page</h1><script>try { parent.document.title = 1 } catch (e) { document.title = \'kept out\' }; document.body.append(document.title)</script>" > index.html && python3 -m http.server 8000',
});

async function signIn(page, token) {
  await page.goto(base + '/');
  await page.getByLabel('Your Glovebox token').fill(token);
  await page.keyboard.press('Enter');
}
let state;
await step('sign in with a token', async () => {
  const page = await open();
  await signIn(page, 'gbx_wrong');
  await page.getByRole('alert').waitFor();
  await check(page, 'the refusal');
  await page.getByLabel('Your Glovebox token').fill(tokens.alice);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Now' }).waitFor();
  assert(!page.url().includes('gbx_'));
  state = await page.context().storageState();
  assert.equal(await page.evaluate(() => document.cookie), '');
  await page.context().close();
});

const file = (page, name) => `/ui/sandboxes/${box}/${page}?path=${encodeURIComponent('/data/' + name)}`;
const pages = {
  'now': '/ui/', 'a sandbox': `/ui/sandboxes/${box}`, 'a sandbox with a network': `/ui/sandboxes/${web.sandbox_id}`,
  'colours': `/ui/runs/${coloured.run_id}`, 'a failed run': `/ui/runs/${failed.run_id}`, 'a picture': `/ui/runs/${drawn.run_id}`,
  'rich results': `/ui/runs/${rich.run_id}`, 'a preview': `/ui/sandboxes/${web.sandbox_id}/preview?port=8000`, 'usage': '/ui/usage',
  'large output': `/ui/runs/${large.run_id}`,
  'files': file('files', ''), 'a hostile file': file('file', '<script>alert(1).html'), 'a binary file': file('file', 'bytes'),
  'try it': '/ui/try', 'workspaces': '/ui/workspaces', 'settings': '/ui/settings', 'nothing': '/ui/nothing',
};
for (const colorScheme of ['light', 'dark']) {
  for (const width of [1280, 380]) {
    await step(`every page, ${colorScheme}, ${width} pixels`, async () => {
      const page = await open({ colorScheme, viewport: { width, height: 800 }, storageState: state });
      for (const [name, path] of Object.entries(pages)) {
        await page.goto(base + path);
        await check(page, name);
      }
      await page.context().close();
    });
  }
}

await step('tables stay tables where their rows are cards', async () => {
  const narrow = await open({ viewport: { width: 380, height: 800 }, storageState: state });
  for (const name of ['now', 'a sandbox with a network', 'files', 'usage', 'settings', 'rich results']) {
    await narrow.goto(base + pages[name]);
    const { said, meant } = await rolesOf(narrow);
    assert(meant.row > 1, `${name} has no table`);
    assert.deepEqual(said, meant, name);
  }
  await narrow.context().close();
});

const page = await open({ storageState: state });
await step('hostile output is text', async () => {
  await page.goto(base + pages.colours);
  const output = page.getByLabel('Output', { exact: true });
  assert((await output.textContent()).includes(evil));
  assert.equal(await output.locator('script, img, a').count(), 0);
  assert.equal(await output.locator('span.a-f1').textContent(), 'red');
  assert.equal(await page.title(), `Run ${coloured.run_id.slice(0, 12)} · Glovebox`);
  await page.goto(base + pages['a hostile file']);
  assert((await page.getByLabel('Content').textContent()).includes(evil));
});
await step('a run says why it failed', async () => {
  await page.goto(base + '/ui/');
  await page.getByRole('link', { name: /def f/ }).click();
  await page.getByText('ZeroDivisionError').first().waitFor();
  assert.equal(await page.locator('.codeline.failed').textContent(), '    return 1 / x\n');
});
await step('a picture is shown', async () => {
  await page.goto(base + pages['a picture']);
  const img = page.locator('.picture img');
  await img.waitFor();
  await page.waitForFunction(() => document.querySelector('.picture img').naturalWidth === 8);
});
await step('tables sort, and charts are drawn', async () => {
  await page.goto(base + pages['rich results']);
  await page.locator('svg.plot rect.series').nth(1).waitFor();
  const cells = () => page.locator('.data tbody td:nth-child(2)').allTextContents();
  assert.deepEqual(await cells(), ['10', '9']);
  await page.getByRole('button', { name: 'n', exact: true }).click();
  assert.deepEqual(await cells(), ['9', '10']);
  const sides = (n) => page.locator(`.data :is(th, td):nth-child(${n})`).evaluateAll((all) => all.map((e) => getComputedStyle(e).textAlign));
  assert.deepEqual(await sides(1), ['left', 'left', 'left']);
  assert.deepEqual(await sides(2), ['right', 'right', 'right']);
});
await step('a preview is of another origin', async () => {
  await page.goto(base + pages['a preview']);
  await page.frameLocator('iframe.preview').getByText('kept out').waitFor();
  assert.equal(await page.title(), 'Port 8000 · Glovebox');
});
await step('loads are charted', async () => {
  await page.goto(base + '/ui/');
  await page.locator('.boxes polyline').first().waitFor();
  const shifts = await page.evaluate(() => new Promise((resolve) => {
    let sum = 0;
    new PerformanceObserver((list) => { for (const e of list.getEntries()) if (!e.hadRecentInput) sum += e.value; }).observe({ type: 'layout-shift' });
    setTimeout(() => resolve(sum), 7000);
  }));
  assert(shifts < 0.01, `the layout shifted by ${shifts}`);
});
await step('one of a thousand sandboxes changes', async () => {
  const many = await open({ storageState: state });
  const grow = (html, name) => html.replace(/(<table class="list boxes"|<table role="table" class="list boxes")[^]*?<tbody[^>]*>\s*(<tr[^]*?<\/tr>)/, (all, _, row) => all +
    Array.from({ length: 1000 }, (_, i) => row.replaceAll(/sbx_\w+/g, 'sbx_' + i).replace(/(<th[^>]*><a[^>]*>)[^]*?<\/a>/, (_, link) => `${link}${i === 500 ? name : 'box ' + i}</a>`)).join(''));
  let html, release;
  const released = new Promise((resolve) => (release = resolve));
  await many.route(base + '/ui/', async (route) => {
    const response = await route.fetch();
    html = await response.text();
    await route.fulfill({ response, body: grow(html, 'before') });
  });
  await many.route(base + '/ui/events', async (route) => {
    await released;
    const part = grow(html, 'after').split(/<div data-live="[^"]*">/)[1].split('</main>')[0].replace(/<\/div>\s*$/, '');
    await route.fulfill({ contentType: 'text/event-stream', body: `event: page\n${part.replaceAll(/^/gm, 'data: ')}\n\nevent: over\ndata:\n\n` });
  });
  await many.goto(base + '/ui/');
  const row = many.locator('[data-key=sbx_500]');
  await row.getByText('before').scrollIntoViewIfNeeded();
  const before = await many.evaluate(() => {
    window.changes = [];
    window.rows = [...document.querySelectorAll('.boxes tbody tr')];
    new MutationObserver((list) => window.changes.push(...list)).observe(document.querySelector('.boxes'), { subtree: true, childList: true, characterData: true, attributes: true });
    return { rows: rows.length, at: scrollY };
  });
  assert(before.rows >= 1000 && before.at > 1000, JSON.stringify(before));
  release();
  await row.getByText('after').waitFor();
  assert.deepEqual(await many.evaluate(() => ({
    rows: document.querySelectorAll('.boxes tbody tr').length, at: scrollY, same: rows.every((r) => r.isConnected),
    moved: changes.filter((c) => c.target.nodeName === 'TBODY').length,
  })), { ...before, same: true, moved: 0 });
  await many.context().close();
});
await step('the operator sees all usage, the audit log and the findings', async () => {
  for (const colorScheme of ['light', 'dark']) {
    const op = await open({ colorScheme, viewport: { width: 380, height: 800 } });
    await signIn(op, tokens.operator);
    await op.getByRole('heading', { name: 'Now' }).waitFor();
    await op.goto(base + '/ui/usage?by=principal');
    await check(op, 'usage of all');
    await op.getByRole('link', { name: 'Audit' }).click();
    await op.getByRole('button', { name: 'Verify now' }).click();
    await op.getByText('The log is intact').waitFor();
    await op.getByRole('cell', { name: 'alice' }).first().waitFor();
    await check(op, 'audit');
    await op.goto(base + '/ui/settings');
    if (colorScheme === 'light') {
      await op.getByRole('button', { name: 'Examine it' }).click();
      await op.getByText('Examined').waitFor();
    }
    await op.getByRole('rowheader', { name: 'a sandbox' }).waitFor();
    await check(op, 'settings of the operator');
    assert.equal((await op.goto(`${base}/ui/sandboxes/${box}`)).status(), 404);
    await op.context().close();
  }
});
await step('a terminal with an editor, a resize and a recording', async () => {
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.goto(`${base}/ui/sandboxes/${box}/terminal`);
  const rows = page.locator('.xterm-rows');
  const screen = () => page.evaluate(() => [...(document.querySelector('.xterm-rows')?.children ?? [])].map((row) => row.textContent.trimEnd()).join('\n'));
  const shows = async (text, timeout = 30000) => {
    try {
      await page.waitForFunction((t) => document.querySelector('.xterm-rows')?.textContent.replaceAll('\u00a0', ' ').includes(t), text, { timeout });
    } catch (e) {
      throw new Error(`the terminal does not show ${text}:\n${await screen()}`, { cause: e });
    }
  };
  await shows('$');
  await page.keyboard.type("stty size; printf '\\e]0;a title\\a\\e]8;;https://evil.example\\aa link\\e]8;;\\a \\e[38;2;1;2;3mtrue\\e[0m \\xff<script>alert(1)</script>\\n'\n");
  await shows('<script>alert(1)</script>');
  assert.equal(await page.title(), 'Terminal · Glovebox');
  assert.equal(await rows.locator('script, a').count(), 0);
  await check(page, 'a terminal');
  await page.keyboard.type('vi notes.txt\n');
  await shows('[New');
  // The editor asks the terminal for its abilities, and draws its screen again after the
  // answers. That removes its own answer to a command, so the command is repeated.
  for (let tries = 1; ; tries++) {
    await page.keyboard.type(':set list?\n');
    try {
      await shows('nolist', 3000);
      break;
    } catch (e) {
      if (tries === 5) throw e;
    }
  }
  await page.keyboard.type('iwritten in the editor');
  await page.setViewportSize({ width: 700, height: 700 });
  await shows('written in the editor');
  await page.waitForTimeout(500); // the editor follows the new size
  await page.keyboard.press('Escape');
  await page.keyboard.type(':wq\n');
  await shows('notes.txt');
  await page.keyboard.type('clear; echo columns-$(tput cols)-; cat notes.txt\n');
  await shows('written in the editor');
  const columns = +/columns-(\d+)-/.exec((await rows.textContent()).replaceAll('\u00a0', ' '))[1];
  assert(columns > 20 && columns < 100, `${columns} columns after the resize`);
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save the recording' }).click()]);
  const cast = readFileSync(await download.path(), 'utf8').trim().split('\n').map((l) => JSON.parse(l));
  assert.equal(cast[0].version, 2);
  assert(cast.slice(1).every(([at, kind]) => at >= 0 && 'or'.includes(kind)));
  await page.getByLabel('Replay a recording').setInputFiles({ name: 'a.cast', mimeType: 'text/plain', buffer: Buffer.from('{"version":2,"width":80,"height":24}\n[0.1,"o","replayed"]\n') });
  await shows('replayed');
  await page.getByText('The recording has ended.').waitFor();
  await page.setViewportSize({ width: 1280, height: 800 });
});
await step('the view of a result in the reference host of MCP Apps', async () => {
  const { tools } = await ask(tokens.alice, 'tools/list', undefined, {});
  const uri = 'ui://glovebox/result.html';
  const { contents: [view] } = await ask(tokens.alice, 'resources/read', uri, { uri });
  assert.equal(view.mimeType, 'text/html;profile=mcp-app');
  const input = { sandbox_id: box, language: 'python', code: `${shown}display(Shown(${table}))\ndisplay(Shown(${chart}))\n${picture}` };
  const result = await ask(tokens.alice, 'tools/call', 'run_code', { name: 'run_code', arguments: input });
  for (const [theme, width] of [['light', 1000], ['dark', 380]]) {
    const host = await open({ viewport: { width, height: 800 } });
    await show(host, {
      html: view.text, tool: tools.find((t) => t.name === 'run_code'), input, result, theme,
      callTool: () => assert.fail('the run has ended'),
    });
    const inside = host.frameLocator('iframe');
    await inside.locator('svg.plot rect.series').nth(1).waitFor();
    await inside.getByRole('button', { name: 'n', exact: true }).click();
    assert.deepEqual(await inside.locator('tbody td:last-child').allTextContents(), ['9', '10']);
    assert((await inside.locator('tbody').textContent()).includes(evil));
    const sides = (n) => inside.locator(`:is(th, td):nth-child(${n})`).evaluateAll((all) => all.map((e) => getComputedStyle(e).textAlign));
    assert.deepEqual(await sides(1), ['left', 'left', 'left']);
    assert.deepEqual(await sides(2), ['right', 'right', 'right']);
    assert.equal(await inside.locator('figure img').evaluate(async (img) => (await img.decode(), img.naturalWidth)), 8);
    await inside.getByRole('button', { name: 'Download as CSV' }).click();
    await host.waitForFunction(() => window.host.files[0]?.resource.mimeType === 'text/csv');
    // The frame is as high as the view, and becomes higher when the view gets narrower.
    const fits = () => host.waitForFunction(() => window.host.sizes.at(-1)?.height > 100 && document.querySelector('iframe').clientHeight === window.host.sizes.at(-1).height);
    await fits();
    assert((await inside.locator('html').evaluate((e) => e.scrollHeight - e.clientHeight)) <= 0, 'the view is higher than its frame');
    assert((await inside.locator('html').evaluate((e) => e.scrollWidth - e.clientWidth)) <= 0, 'the view is wider than its frame');
    const before = await host.evaluate(() => window.host.sizes.length);
    await host.setViewportSize({ width: 320, height: 800 });
    await host.waitForFunction((n) => window.host.sizes.length > n, before);
    await fits();
    assert.equal(await inside.locator('html').evaluate((e) => getComputedStyle(e).colorScheme), theme);
    await host.evaluate(() => window.host.bridge.setHostContext({ theme: 'dark' }));
    await inside.locator('html[style*="dark"]').waitFor();
    assert.deepEqual(await host.evaluate(() => ({ uri: window.host.uri, view: window.host.view.name, errors: window.host.errors })), { uri, view: 'glovebox', errors: [] });
    await host.evaluate(() => window.host.bridge.teardownResource({}));
    await host.context().close();
  }
});
await step('the view follows a run in the reference host of MCP Apps', async () => {
  const { tools } = await ask(tokens.alice, 'tools/list', undefined, {});
  const { contents: [view] } = await ask(tokens.alice, 'resources/read', 'ui://glovebox/result.html', { uri: 'ui://glovebox/result.html' });
  const input = { sandbox_id: box, command: 'sleep 2; echo at last', wait_seconds: 0 };
  const result = await ask(tokens.alice, 'tools/call', 'run_command', { name: 'run_command', arguments: input });
  assert.equal(result.structuredContent.status, 'running');
  const asked = [];
  const host = await open();
  await show(host, {
    html: view.text, tool: tools.find((t) => t.name === 'run_command'), input, result, theme: 'light',
    callTool: (params) => { asked.push(params.name); return ask(tokens.alice, 'tools/call', params.name, params); },
  });
  await host.frameLocator('iframe').getByText('at last').waitFor();
  assert.deepEqual([...new Set(asked)], ['get_run']);
  await host.context().close();
});
await step('a snapshot, a rollback and a fork', async () => {
  const { sandbox_id: id } = await call(tokens.alice, 'create_sandbox', { name: 'branches' });
  const python = async (code) => (await call(tokens.alice, 'run_code', { sandbox_id: id, language: 'python', code })).stdout;
  await python('x = 1');
  await page.goto(`${base}/ui/sandboxes/${id}`);
  await page.getByText('There are none of this sandbox.').waitFor();
  await page.getByText('Snapshot …', { exact: true }).click();
  await page.getByLabel('Name, if you want one').fill(evil);
  await page.getByRole('button', { name: 'Take a snapshot' }).click();
  const row = page.getByRole('row').filter({ hasText: evil });
  await row.waitFor();
  await python('x = 2');
  for (const colorScheme of ['light', 'dark']) {
    const narrow = await open({ colorScheme, storageState: state, viewport: { width: 380, height: 800 } });
    await narrow.goto(`${base}/ui/sandboxes/${id}`);
    for (const summary of ['Snapshot …', 'Fork …', 'Roll back …', 'Delete …']) await narrow.getByText(summary, { exact: true }).click();
    await check(narrow, 'a sandbox with open forms');
    await narrow.context().close();
  }
  await row.getByText('Roll back …').click();
  await row.getByRole('button', { name: 'Roll back' }).click();
  await page.waitForURL(`${base}/ui/sandboxes/${id}`);
  assert.equal(await python('print(x)'), '1\n');
  await page.getByText('Fork …', { exact: true }).click();
  await page.getByLabel('Copies').fill('2');
  await page.getByRole('button', { name: 'Make copies' }).click();
  await page.getByRole('link', { name: 'branches-2' }).waitFor();
  await call(tokens.alice, 'run_command', { sandbox_id: id, command: 'sleep 1000', wait_seconds: 0 });
  await page.goto(`${base}/ui/sandboxes/${id}`);
  await page.getByText('Snapshot …', { exact: true }).click();
  await page.getByRole('button', { name: 'Take a snapshot' }).click();
  await page.getByRole('alert').getByText('runs going on').waitFor();
  await check(page, 'a refusal');
  await row.getByText('Delete …').click();
  await row.getByRole('button', { name: 'Delete the snapshot' }).click();
  await page.getByText('There are none of this sandbox.').waitFor();
  for (const live of (await call(tokens.alice, 'list_sandboxes', {})).sandboxes) {
    if (live.name?.startsWith('branches')) await call(tokens.alice, 'stop_sandbox', { sandbox_id: live.sandbox_id });
  }
});
await step('100 MB of output', async () => {
  const res = await page.goto(base + pages['large output']);
  assert((await res.body()).length < 1 << 20);
  await page.getByText('are not shown').first().waitFor();
});
await step('code of the editor runs', async () => {
  await page.goto(base + '/ui/try');
  await page.getByLabel('Code').fill('print("from " + "the editor")');
  await page.getByRole('button', { name: 'Run' }).click();
  await page.getByText('from the editor').waitFor();
  await page.getByRole('heading', { name: 'OK' }).waitFor();
});
await step('an upload', async () => {
  await page.goto(base + pages.files);
  await page.getByLabel('Files', { exact: true }).last().setInputFiles({ name: 'up.txt', mimeType: 'text/plain', buffer: Buffer.from('uploaded text') });
  await page.getByRole('button', { name: 'Upload' }).click();
  await page.getByRole('link', { name: 'up.txt' }).click();
  await page.getByText('uploaded text').waitFor();
});
await step('without scripts', async () => {
  const plain = await open({ storageState: state, javaScriptEnabled: false });
  await plain.goto(base + '/ui/');
  await plain.getByRole('link', { name: 'web-app' }).click();
  await plain.getByRole('cell', { name: 'Refused: not allowed' }).first().waitFor();
  await plain.context().close();
});
await step('another principal sees nothing', async () => {
  const bob = await open();
  await signIn(bob, tokens.bob);
  await bob.getByText('No live sandboxes').waitFor();
  await check(bob, 'the empty page');
  const own = ['now', 'try it', 'workspaces', 'usage', 'settings'].map((n) => pages[n]);
  const streams = [box, web.sandbox_id].map((id) => `/ui/sandboxes/${id}/events`).concat(`/ui/runs/${large.run_id}/events`, `/ui/runs/${large.run_id}/output/stdout`, `/ui/runs/${drawn.run_id}/results/0`);
  for (const path of Object.values(pages).concat(streams)) {
    const res = await bob.context().request.get(base + path);
    assert.equal(res.status(), own.includes(path) ? 200 : 404, path);
    assert(!(await res.text()).includes('web-app'), path);
  }
  await bob.context().close();
});
await step('a page is live, and the keyboard stops a sandbox', async () => {
  await page.goto(base + '/ui/');
  await page.getByText('Live', { exact: true }).waitFor();
  const added = await call(tokens.alice, 'create_sandbox', { name: 'added-later' });
  await page.getByRole('link', { name: 'added-later' }).waitFor();
  const other = await open({ storageState: state });
  await other.goto(`${base}/ui/sandboxes/${added.sandbox_id}`);
  const focused = () => other.evaluate(() => document.activeElement.textContent);
  await other.keyboard.press('Tab');
  assert.equal(await focused(), 'Skip to the content');
  assert((await other.locator('.skip').boundingBox()).x >= 0, 'the link is not visible');
  await other.keyboard.press('Enter');
  await other.keyboard.press('Tab');
  assert.equal(await focused(), 'Now');
  assert.equal(await other.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), 'solid');
  await other.getByText('Stop …', { exact: true }).focus();
  await other.keyboard.press('Enter');
  await other.keyboard.press('Tab');
  assert.equal(await focused(), 'Stop the sandbox');
  await other.keyboard.press('Escape');
  assert.equal(await focused(), 'Stop …');
  await other.getByRole('button', { name: 'Stop the sandbox' }).waitFor({ state: 'hidden' });
  await other.keyboard.press('Enter');
  await other.keyboard.press('Tab');
  await other.keyboard.press('Enter');
  await other.getByText('Stopped', { exact: true }).first().waitFor();
  await other.context().close();
  await page.locator('.boxes').getByRole('link', { name: 'added-later' }).waitFor({ state: 'detached' });
});
await step('a one-time link', async () => {
  const link = cli('open', '--token', 'alice', '--print');
  const first = await open();
  await first.goto(link);
  await first.getByRole('heading', { name: 'Now' }).waitFor();
  const second = await open();
  await second.goto(link);
  await second.getByRole('alert').waitFor();
  await first.context().close();
  await second.context().close();
});
await step('the server restarts', async () => {
  await page.goto(base + '/ui/');
  await page.getByText('Live', { exact: true }).waitFor();
  await server.end();
  await page.getByText('Reconnecting').waitFor();
  server = await serve(new URL(base).host, { flags: ['--allow-network', 'example.com'] });
  await page.getByText('You are signed out.').waitFor();
  await page.getByRole('link', { name: 'Sign in' }).click();
  await page.getByLabel('Your Glovebox token').fill(tokens.alice);
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: 'web-app' }).first().waitFor();
});
cli('stop', '--all');
await server.end();
await done();
