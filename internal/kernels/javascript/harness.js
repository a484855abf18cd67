// Starts a kernel as the guest does, for the tests, on this Node or on the Bun
// that GLOVEBOX_TEST_BUN names. Node cannot make the guest's socket of messages:
// here the events come on a stream, where the key tells them apart.
'use strict';

const fs = require('fs');
const path = require('path');
const { spawn } = require('child_process');

const bun = process.env.GLOVEBOX_TEST_BUN;
const KEY = '0123456789abcdef0123456789abcdef';
const source = (name) => fs.readFileSync(path.join(__dirname, name));

class Kernel {
  constructor(options = {}) {
    this.next = 0;
    this.log = [];
    this.waiting = null;
    this.parts = '';
    this.child = spawn(bun || process.execPath, [...(bun ? ['--no-install'] : []), '-e', source('boot.js').toString()], {
      stdio: ['ignore', 'pipe', 'pipe', 'pipe', 'pipe'], cwd: options.cwd, env: { ...process.env, ...options.env },
    });
    this.child.on('exit', (code, signal) => { this.exit = { code, signal }; this.wake(); });
    this.child.stdout.on('data', (d) => this.add('stdout', d.toString()));
    this.child.stderr.on('data', (d) => this.add('stderr', d.toString()));
    let rest = '';
    this.child.stdio[4].on('error', () => {});
    this.child.stdio[3].on('error', () => {});
    this.child.stdio[4].on('data', (d) => {
      rest += d.toString();
      const messages = rest.split(KEY);
      // The last may not be whole: it is when it parses.
      rest = '';
      messages.forEach((m, i) => {
        if (!m) return;
        if (m[0] === '+') {
          if (i < messages.length - 1) { this.parts += m.slice(1); return; }
          rest = KEY + m;
          return;
        }
        let event;
        try { event = JSON.parse(this.parts + m.slice(1)); } catch { rest = KEY + m; return; }
        this.parts = '';
        if (m[0] === '?') setTimeout(() => { this.add('event', event); this.child.stdio[4].write('!'); }, 5);
        else setTimeout(() => this.add('event', event), 5);
      });
    });
    const kernel = source('kernel.js');
    this.write(Buffer.from(String(kernel.length).padStart(8, '0')), kernel);
    this.send({ op: 'init', key: KEY, transform: source('transform.js').toString(), prepare: options.prepare });
  }

  write(...parts) { this.child.stdio[3].write(Buffer.concat(parts)); }

  send(request) {
    const data = Buffer.from(JSON.stringify(request));
    const head = Buffer.alloc(4);
    head.writeUInt32BE(data.length);
    this.write(head, data);
  }

  add(kind, what) {
    if (kind === 'event' && what.ev === 'input') this.send({ op: 'input', id: what.id, text: this.lines.shift() ?? null });
    const last = this.log[this.log.length - 1];
    if (kind !== 'event' && last && last[0] === kind) last[1] += what;
    else this.log.push(kind === 'event' ? [what.ev, what] : [kind, what]);
    this.wake();
  }

  wake() { if (this.waiting) this.waiting(); }

  async until(done) {
    const deadline = Date.now() + 20000;
    for (;;) {
      const found = done();
      if (found) return found;
      if (this.exit) throw new Error('the kernel is gone: ' + JSON.stringify(this.exit) + JSON.stringify(this.log));
      if (Date.now() > deadline) throw new Error('the kernel says nothing: ' + JSON.stringify(this.log));
      await new Promise((ok) => { this.waiting = ok; setTimeout(ok, 1000); });
    }
  }

  event(name) {
    return this.until(() => {
      const i = this.log.findIndex(([kind]) => kind === name);
      return i >= 0 ? this.log.splice(i, 1)[0][1] : null;
    });
  }

  // run runs code, answers it with lines, and returns what came of it.
  async run(code, { language = 'javascript', env, interrupt, lines } = {}) {
    if (this.next === 0) await this.event('ready');
    const id = ++this.next;
    this.lines = lines;
    this.send({ op: 'run', id, code, language, env, stdin: Boolean(lines) });
    if (interrupt) setTimeout(() => this.child.kill('SIGINT'), interrupt);
    await this.until(() => this.log.find(([kind, e]) => kind === 'end' && e.id === id));
    const log = this.log;
    this.log = [];
    const end = log.find(([kind]) => kind === 'end')[1];
    const of = (kind) => log.filter(([k]) => k === kind).map(([, e]) => e);
    const main = of('result').filter((e) => e.main).pop();
    return {
      log, end, status: end.status, kinds: log.map(([k]) => k).filter((k) => k !== 'end'),
      prompts: of('input').map((e) => e.prompt), stdout: of('stdout').join(''), stderr: of('stderr').join(''), late: of('late'),
      results: of('result').map((e) => e.data), main: main && main.data['text/plain'], error: of('error').pop(),
    };
  }

  close() { this.child.kill('SIGKILL'); }
}

module.exports = { Kernel, bun };
