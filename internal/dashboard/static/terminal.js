// A terminal of a sandbox: xterm.js on a WebSocket. Records as asciicast v2, and replays.
const place = document.getElementById('terminal');

// xterm.js writes style elements and attributes, which the policy of this page refuses. It
// allows sheets that scripts construct, and the styles of elements, so the texts go there.
const make = document.createElement.bind(document);
document.createElement = (name, options) => {
  if (String(name).toLowerCase() !== 'style') return make(name, options);
  const e = make('template'); // it stands for the element, and shows nothing
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  Object.defineProperty(e, 'textContent', { get: () => '', set: (text) => sheet.replaceSync(text) });
  Object.defineProperty(e, 'sheet', { get: () => sheet });
  return e;
};

const setAttribute = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
  if (name === 'style') this.style.cssText = value;
  else setAttribute.call(this, name, value);
};

const [{ Terminal }, { FitAddon }] = await Promise.all([import(place.dataset.xterm), import(place.dataset.fit)]);
const colours = getComputedStyle(document.documentElement);
const term = new Terminal({
  fontFamily: colours.getPropertyValue('--mono'), fontSize: 13, scrollback: 5000, screenReaderMode: true, allowProposedApi: false,
  linkHandler: { activate() {} }, // links that programs print lead nowhere
  theme: { background: colours.getPropertyValue('--term').trim(), foreground: colours.getPropertyValue('--terminal').trim() },
});
const fit = new FitAddon();
term.loadAddon(fit);
term.open(place);
fit.fit();

const ended = document.getElementById('ended'), save = document.getElementById('save');
const maxRecording = 20_000_000;
let events = [], recorded = 0, began = performance.now(), first = { cols: term.cols, rows: term.rows };
function record(kind, data) {
  if (recorded > maxRecording) return;
  recorded += data.length;
  events.push([Math.round(performance.now() - began) / 1000, kind, data]);
  save.disabled = false;
}

const decoder = new TextDecoder(), encoder = new TextEncoder();
let socket;
function connect() {
  const url = new URL(place.dataset.socket, location.href);
  url.protocol = url.protocol.replace('http', 'ws');
  url.search = new URLSearchParams({ cols: term.cols, rows: term.rows });
  socket = new WebSocket(url);
  socket.binaryType = 'arraybuffer';
  socket.onopen = () => { ended.textContent = ''; term.focus(); };
  socket.onmessage = (e) => {
    if (typeof e.data === 'string') {
      ended.textContent = JSON.parse(e.data).ended;
      return;
    }
    const text = decoder.decode(e.data, { stream: true });
    record('o', text);
    term.write(text);
  };
  socket.onclose = () => {
    const again = document.createElement('button');
    again.type = 'button';
    again.textContent = 'Start another shell';
    again.onclick = () => { term.reset(); connect(); };
    ended.append(ended.textContent ? ' ' : 'The connection has ended. ', again);
  };
}
term.onData((text) => socket?.readyState === WebSocket.OPEN && socket.send(encoder.encode(text)));
term.onResize(({ cols, rows }) => {
  record('r', `${cols}x${rows}`);
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ cols, rows }));
});
new ResizeObserver(() => fit.fit()).observe(place);
connect();

save.addEventListener('click', () => {
  const head = { version: 2, width: first.cols, height: first.rows, timestamp: Math.round((Date.now() - performance.now() + began) / 1000), env: { TERM: 'xterm-256color' } };
  const lines = [head, ...events].map((e) => JSON.stringify(e)).join('\n') + '\n';
  const a = document.createElement('a');
  a.href = URL.createObjectURL(new Blob([lines], { type: 'application/x-asciicast' }));
  a.download = 'glovebox.cast';
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10_000);
});

// A recording is played in this terminal, whose shell ends before.
document.getElementById('replay').addEventListener('change', async (e) => {
  const [head, ...lines] = (await e.target.files[0].text()).split('\n').filter(Boolean).map((l) => JSON.parse(l));
  if (head.version !== 2) {
    ended.textContent = 'This file is no recording in the form asciicast v2.';
    return;
  }
  if (socket) { socket.onclose = null; socket.close(); }
  term.reset();
  ended.textContent = 'Replaying …';
  let at = 0;
  for (const [time, kind, data] of lines) {
    await new Promise((done) => setTimeout(done, Math.min(2000, (time - at) * 1000)));
    at = time;
    if (kind === 'o') term.write(data);
  }
  ended.textContent = 'The recording has ended.';
});
