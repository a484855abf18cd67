// Shows the result of a run in an MCP client: MCP Apps, version 2026-01-26. The host and
// this view exchange messages of JSON-RPC. Data of sandboxes is set as text.
const host = window.parent;
let last = 0;
const waiting = new Map();
const post = (message) => host.postMessage({ jsonrpc: '2.0', ...message }, '*');
const notify = (method, params = {}) => post({ method, params });
const request = (method, params) => new Promise((resolve, reject) => {
  waiting.set(++last, { resolve, reject });
  post({ id: last, method, params });
});

const add = (parent, name, text, className) => {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  parent.append(e);
  return e;
};

// tableOf makes a table of the texts of another. Documents that DOMParser makes run no
// scripts and load nothing.
function tableOf(html) {
  const from = new DOMParser().parseFromString(html, 'text/html').querySelector('table');
  if (!from || from.rows.length === 0) return;
  const table = document.createElement('table');
  const rows = [...from.rows].slice(0, 501), isHead = (r) => [...r.cells].every((c) => c.tagName === 'TH');
  const head = isHead(rows[0]) ? add(table, 'thead') : undefined, body = add(table, 'tbody');
  for (const [i, row] of rows.entries()) {
    const tr = add(i === 0 && head ? head : body, 'tr');
    for (const c of [...row.cells].slice(0, 60)) {
      const cell = add(tr, c.tagName === 'TH' ? 'th' : 'td', c.textContent.trim().slice(0, 300));
      if (c.tagName === 'TH') cell.scope = tr.parentNode === head ? 'col' : 'row';
    }
  }
  align(table, [...body.rows]);
  return table;
}

// align marks the columns of numbers, so that a column and its name are on one side. A
// column of numbers may have missing values.
function align(table, rows) {
  const numeric = /^[+-]?[$€£]? ?(\d[\d.,_ ]*|\.\d+)([eE][+-]?\d+)? ?%?$/;
  const missing = ['', '-', '–', '…', '...', 'NaN', 'nan', 'NaT', '<NA>', 'NA', 'None', 'null', 'inf', '-inf', 'Inf', '-Inf'];
  for (let i = 0; i < 60; i++) {
    const texts = rows.map((r) => r.cells[i]?.textContent ?? '');
    if (!texts.some((t) => numeric.test(t)) || !texts.every((t) => numeric.test(t) || missing.includes(t))) continue;
    for (const r of table.rows) r.cells[i]?.classList.add('num');
  }
}

const place = document.body;
let run = {}, images = [], can = {}, following = false, prefix = '';

function download(name, mimeType, text) {
  return request('ui/download-file', { contents: [{ type: 'resource', resource: { uri: 'file:///' + name, mimeType, text } }] });
}

function show() {
  place.replaceChildren();
  const header = add(place, 'header');
  const done = run.status !== 'running', good = run.verdict?.code === 'ok';
  add(header, 'span', done ? (run.verdict?.code ?? run.error?.kind ?? 'ended').replaceAll('_', ' ') : 'running', 'state ' + (done ? (good ? 'good' : 'bad') : 'busy'));
  if (run.duration_ms) add(header, 'span', `${run.duration_ms} ms`, 'soft');
  if (run.usage?.cpu_ms) add(header, 'span', `${run.usage.cpu_ms} ms CPU`, 'soft');
  if (can.downloadFile && run.stdout) {
    add(header, 'button', 'Download the output').addEventListener('click', () => download('output.txt', 'text/plain', run.stdout).catch(() => {}));
  }
  for (const text of [run.verdict?.cause, run.verdict?.next_step]) if (text) add(place, 'p', text);
  const results = Array.isArray(run.results) ? run.results : [], numbers = new Set(results.map((r) => r.number));
  for (const number of numbers) {
    const of = (mime) => results.find((r) => r.number === number && r.mime === mime);
    const chart = of('application/vnd.glovebox.chart+json'), html = of('text/html');
    let shown = false;
    if (chart?.data) {
      const figure = draw(chart.data);
      if (figure) shown = place.appendChild(figure);
    }
    const table = html?.text && tableOf(html.text);
    if (table) {
      add(place, 'div', undefined, 'scroll').append(table);
      sortable(table);
      shown = true;
      if (can.downloadFile) {
        const csv = [...table.rows].map((r) => [...r.cells].map((c) => '"' + c.textContent.replaceAll('"', '""') + '"').join(',')).join('\r\n');
        add(place, 'p').append(Object.assign(document.createElement('button'), { textContent: 'Download as CSV', onclick: () => download('table.csv', 'text/csv', csv).catch(() => {}) }));
      }
    }
    const text = of('text/plain')?.text;
    if (!shown && text) add(place, 'pre', text);
  }
  for (const image of images) {
    const img = add(add(place, 'figure'), 'img');
    img.alt = 'A picture that the program showed';
    img.src = `data:${image.mimeType};base64,${image.data}`;
  }
  if (run.stdout) add(place, 'pre', run.stdout);
  if (run.stderr) add(place, 'pre', run.stderr, 'error');
  if (done && !run.stdout && !run.stderr && results.length === 0 && images.length === 0) add(place, 'p', 'The program wrote nothing.', 'soft');
}

// take shows a result of a tool. While the run goes on, it asks for newer ones.
async function take(result) {
  run = result?.structuredContent ?? {};
  images = (Array.isArray(result?.content) ? result.content : []).filter((c) => c?.type === 'image' && /^image\/(png|jpeg|gif|webp)$/.test(c.mimeType) && /^[\w+/=]+$/.test(c.data));
  show();
  if (run.status !== 'running' || !run.run_id || !can.serverTools || following) return;
  following = true;
  for (let wait = 500; run.status === 'running'; wait = Math.min(2 * wait, 5000)) {
    await new Promise((r) => setTimeout(r, wait));
    try {
      const next = await request('tools/call', { name: prefix + 'get_run', arguments: { run_id: run.run_id } });
      if (next?.isError) break;
      await take(next);
    } catch { break; }
  }
  following = false;
}

function theme(context) {
  if (context?.theme === 'light' || context?.theme === 'dark') document.documentElement.style.colorScheme = context.theme;
}

addEventListener('message', (e) => {
  const m = e.data;
  if (e.source !== host || m?.jsonrpc !== '2.0') return;
  if (m.method === undefined) {
    const w = waiting.get(m.id);
    waiting.delete(m.id);
    if (m.error) w?.reject(new Error(m.error.message));
    else w?.resolve(m.result);
    return;
  }
  if (m.method === 'ui/notifications/tool-result') take(m.params);
  if (m.method === 'ui/notifications/tool-cancelled') add(place, 'p', 'The call was cancelled.', 'soft');
  if (m.method === 'ui/notifications/host-context-changed') theme(m.params);
  if (m.id === undefined) return;
  if (m.method === 'ui/resource-teardown' || m.method === 'ping') post({ id: m.id, result: {} });
  else post({ id: m.id, error: { code: -32601, message: 'Method not found' } });
});

request('ui/initialize', { protocolVersion: '2026-01-26', appInfo: { name: 'glovebox', title: 'Glovebox', version: '1' }, appCapabilities: {} }).then((answer) => {
  can = answer?.hostCapabilities ?? {};
  theme(answer?.hostContext);
  // The operator may have given all tools a prefix.
  prefix = /^(.*)(?:run_code|run_command|get_run)$/.exec(answer?.hostContext?.toolInfo?.tool?.name ?? '')?.[1] ?? '';
  notify('ui/notifications/initialized');
  new ResizeObserver(() => notify('ui/notifications/size-changed', { width: Math.ceil(document.documentElement.scrollWidth), height: Math.ceil(document.body.getBoundingClientRect().height) })).observe(document.body);
});
