// The JavaScript kernel: runs the guest's requests in one lasting interpreter.
//
// Node 18 or newer or Bun, built-in modules only. It is read from the request pipe by
// a line of bootstrap and called with require, process and the sources of its
// parts. What it calls later is bound here: user code may replace any global.
// The protocol is described in the Go package's documentation.
(function (require, process, boot) {
  'use strict';

  const fs = require('fs');
  const vm = require('vm');
  const net = require('net');
  const path = require('path');
  const util = require('util');
  const Module = require('module');
  const { pathToFileURL } = require('url');
  const { Console } = require('console');
  const { Readable, Writable } = require('stream');
  const { AsyncLocalStorage } = require('async_hooks');
  const { Buffer, Promise, Symbol, Error, RegExp, SyntaxError, String, Number, Uint8Array, globalThis: root } = globalThis;
  const { stringify, parse } = JSON;
  const from = Buffer.from.bind(Buffer);
  const concat = Buffer.concat.bind(Buffer);
  const alloc = Buffer.alloc.bind(Buffer);
  const utf8Write = Buffer.prototype.write;
  const isBuffer = Buffer.isBuffer.bind(Buffer);
  const race = Promise.race.bind(Promise);
  const isArray = Array.isArray;
  const { isPromise, isProxy } = util.types;
  const { createRequire, stripTypeScriptTypes, builtinModules } = Module;
  const { Script, constants } = vm;
  const { writeSync, readSync, openSync, fstatSync, closeSync } = fs;
  const { inspect } = util;
  const { defineProperty, getOwnPropertyDescriptor, keys } = Object;
  const { wait, notify, load: loadAt, store: storeAt, compareExchange } = Atomics;
  const now = Date.now;
  const cwd = process.cwd.bind(process);
  const nextTick = process.nextTick.bind(process);
  const reallyExit = process.reallyExit.bind(process);

  const REQUESTS = 3;
  const EVENTS = 4;
  const MAX_PART = 32 << 10;
  const MAX_TEXT = 1 << 20;
  const MAX_EVENT = 24 << 20;
  const MAX_STACK = 64 << 10;
  const MAX_CELLS = 500;
  const HELPER = '$glovebox$';
  const HERE = 'glovebox:kernel';
  const bun = process.versions.bun;
  const noCode = bun ? 0 : undefined; // Bun keeps a code that is set to undefined
  const { Transpiler } = bun ? globalThis.Bun : {};

  let key = '';
  let current = null; // the run, while there is one
  let count = 0;
  let transform;
  let align;
  const runs = new AsyncLocalStorage();
  const accessors = new globalThis.Map(); // name -> the getter that we defined
  const cells = new globalThis.Map(); // the last ones: file -> the run

  // Frames.

  function send(event, ask) {
    flush();
    const data = from(stringify(event));
    for (let i = 0; i < data.length; i += MAX_PART) {
      const last = i + MAX_PART >= data.length;
      const mark = last ? (ask ? '?' : '.') : '+';
      put(EVENTS, concat([from(key + mark), data.subarray(i, i + MAX_PART)]));
    }
    // The guest answers when it has read what was printed before.
    if (ask) readSync(EVENTS, alloc(16), 0, 16, null);
  }

  const sleeper = new Int32Array(new SharedArrayBuffer(4));

  function put(fd, data) {
    for (let n = 0; n < data.length;) {
      try {
        n += writeSync(fd, data, n, data.length - n);
      } catch (e) {
        if (e.code === 'EAGAIN') { wait(sleeper, 0, 0, 1); continue; }
        if (fd === EVENTS) reallyExit(1); // the guest is gone, or our descriptor
        throw e;
      }
    }
  }

  // Standard descriptors. Ours are copies that user code does not know; where
  // it closed one of the first three, it gets that one anew.

  const copies = [copy(0, 'r'), copy(1, 'w'), copy(2, 'w')];

  function copy(fd, mode) {
    try {
      return openSync('/proc/self/fd/' + fd, mode);
    } catch {
      return fd;
    }
  }

  function heal() {
    for (const fd of [0, 1, 2]) {
      try {
        fstatSync(fd);
      } catch {
        // The lowest free number is taken, which is fd.
        try { openSync('/proc/self/fd/' + copies[fd], fd ? 'w' : 'r'); } catch { return; }
      }
    }
  }

  function print(stream, chunk) {
    const run = runs.getStore();
    if (run !== undefined && (!current || run !== current.id)) {
      const text = isBuffer(chunk) ? chunk.toString() : chunk;
      for (let i = 0; i < text.length; i += MAX_PART) {
        send({ ev: 'late', stream: stream === 1 ? 'stdout' : 'stderr', id: run, text: text.slice(i, i + MAX_PART) });
      }
      return;
    }
    if (gathers() && gather(stream, chunk)) return;
    put(copies[stream], typeof chunk === 'string' ? from(chunk) : chunk);
  }

  // Gathering. Each write costs the sandbox much more than what it writes, and
  // what is printed must not wait for code that goes on without a pause. So
  // where lines come fast they gather in memory, and a thread hands them on; the
  // rest of the time there is neither.

  const GATHER = 256 << 10;
  const GATHER_MS = 2;
  const BURST = 64; // writes, in as many milliseconds at most, that begin it
  const [LOCK, USED, STREAM, READY, FRESH, PAUSE] = [0, 1, 2, 3, 4, 5];
  const FREE = 0, OURS = 1; // of LOCK; 2 is the thread's
  let shared; // what the thread and we have in common, once there is one
  let writes = 0;
  let since = 0;

  // gathers reports whether what is printed is to gather.
  function gathers() {
    if (writes < 0) return loadAt(shared.state, READY) === 1;
    if (++writes % BURST) return false;
    const t = now();
    const burst = writes > BURST && t - since <= BURST;
    since = t;
    if (!burst) return false;
    try {
      if (!shared) startGathering();
      writes = -1; // for the rest of the run
    } catch { /* no more threads: do without */ }
    return false;
  }

  function startGathering() {
    const made = { state: new Int32Array(new SharedArrayBuffer(32)), bytes: from(new SharedArrayBuffer(GATHER)) };
    const { Worker, SHARE_ENV } = require('worker_threads');
    const thread = new Worker('(' + handOn + ')(require)', {
      eval: true, env: SHARE_ENV, execArgv: [], argv: [], stdin: false,
      workerData: { state: made.state, data: new Uint8Array(made.bytes.buffer), copies, GATHER_MS, LOCK, USED, STREAM, READY, FRESH, PAUSE },
    });
    thread.on('error', () => storeAt(made.state, READY, 0));
    thread.unref();
    shared = made;
  }

  // handOn is what the thread does: it writes what has gathered.
  function handOn(require) {
    const fs = require('fs');
    const { state, data, copies, GATHER_MS, LOCK, USED, STREAM, READY, FRESH, PAUSE } = require('worker_threads').workerData;
    Atomics.store(state, READY, 1);
    for (;;) {
      Atomics.wait(state, FRESH, 0);
      Atomics.store(state, FRESH, 0);
      Atomics.wait(state, PAUSE, 0, GATHER_MS);
      while (Atomics.compareExchange(state, LOCK, 0, 2) !== 0) Atomics.wait(state, PAUSE, 0, 1);
      try {
        const end = Atomics.load(state, USED);
        for (let at = 0; at < end;) {
          try {
            at += fs.writeSync(copies[Atomics.load(state, STREAM)], data, at, end - at);
          } catch (e) {
            if (e.code !== 'EAGAIN') throw e;
            Atomics.wait(state, PAUSE, 0, 1);
          }
        }
      } finally {
        Atomics.store(state, USED, 0);
        Atomics.store(state, LOCK, 0);
        Atomics.notify(state, LOCK);
      }
    }
  }

  // lock waits for the thread, never for ourselves: a run that is interrupted
  // leaves in the middle of anything.
  function lock() {
    const { state } = shared;
    for (;;) {
      const was = compareExchange(state, LOCK, FREE, OURS);
      if (was === FREE || was === OURS) return;
      wait(state, LOCK, was);
    }
  }

  // gather keeps a chunk for the thread to write; it reports false if that is to
  // be written at once.
  function gather(stream, chunk) {
    const { state, bytes } = shared;
    const isText = typeof chunk === 'string';
    const room = isText ? chunk.length * 3 : chunk.length; // in UTF-8, at the most
    lock();
    try {
      let used = loadAt(state, USED);
      if (used && (loadAt(state, STREAM) !== stream || used + room > GATHER)) {
        writeGathered();
        used = 0;
      }
      if (room > GATHER) return false;
      const n = isText ? utf8Write.call(bytes, chunk, used) : chunk.length;
      if (!isText) bytes.set(chunk, used);
      storeAt(state, STREAM, stream);
      storeAt(state, USED, used + n);
      if (!used) {
        storeAt(state, FRESH, 1);
        notify(state, FRESH);
      }
      return true;
    } finally {
      storeAt(state, LOCK, FREE);
    }
  }

  function writeGathered() {
    const { state } = shared;
    const n = loadAt(state, USED);
    if (!n) return;
    put(copies[loadAt(state, STREAM)], shared.bytes.subarray(0, n));
    storeAt(state, USED, 0);
  }

  // flush hands on what has gathered, so that order holds.
  function flush() {
    if (!shared) return;
    lock();
    try { writeGathered(); } finally { storeAt(shared.state, LOCK, FREE); }
  }

  // Programs that are started write to the same descriptors.
  function flushBeforePrograms() {
    const programs = require('child_process');
    const { spawn } = programs.ChildProcess.prototype;
    programs.ChildProcess.prototype.spawn = function (...args) { flush(); return spawn.apply(this, args); };
    for (const name of ['spawnSync', 'execSync', 'execFileSync']) {
      const f = programs[name];
      programs[name] = { [name](...args) { flush(); return f(...args); } }[name];
    }
    Module.syncBuiltinESMExports();
  }

  function output(stream) {
    const w = new Writable({
      decodeStrings: false,
      write(chunk, encoding, done) {
        print(stream, typeof chunk === 'string' && encoding !== 'utf8' && encoding !== 'buffer' ? from(chunk, encoding) : chunk);
        done();
      },
    });
    // Most of what is printed needs nothing that streams do.
    const { write } = w;
    w.write = function (chunk, encoding, done) {
      if (typeof chunk !== 'string' || encoding !== undefined && typeof encoding !== 'function' || w.writableEnded || w.writableNeedDrain) {
        return write.call(w, chunk, encoding, done);
      }
      print(stream, chunk);
      const told = typeof encoding === 'function' ? encoding : done;
      if (typeof told === 'function') nextTick(told);
      return true;
    };
    w.on('error', () => {}); // of who writes to one that was ended
    w.fd = stream;
    w.isTTY = false;
    w._isStdio = true;
    w.destroySoon = w.destroy = () => w;
    return w;
  }

  const streams = [null, output(1), output(2)];

  // Input: each line is asked for through the run.

  // ask returns a promise of a line, or of null at the end of input.
  function ask(run, prompt) {
    return new Promise((answered, refused) => {
      if (!run || run !== current) throw new Error('the run that asks for input has ended');
      if (!run.answers) throw new Error('input needs an answer, but nobody can answer in this run: pass the value in the code instead');
      run.questions.push({ prompt: String(prompt).slice(0, 4096), answered });
      if (run.questions.length === 1) putQuestion(run);
    });
  }

  function putQuestion(run) {
    send({ ev: 'input', id: run.id, prompt: run.questions[0].prompt, password: false });
  }

  function answer(request) {
    const run = current;
    if (!run || run.id !== request.id || !run.questions.length) return;
    run.questions.shift().answered(request.text || null);
    if (run.questions.length) putQuestion(run);
  }

  async function input(prompt = '') {
    const store = runs.getStore();
    const line = await ask(store === undefined || current && store === current.id ? current : null, prompt);
    if (line === null) throw new Error('input(): end of input');
    return line.replace(/\n$/, '');
  }

  function inputStream(run) {
    const r = new Readable({
      read() {
        ask(run, '').then((line) => r.push(line && from(line)), (e) => (run === current ? r.destroy(e) : r.push(null)));
      },
    });
    r.fd = 0;
    r.isTTY = false;
    return r;
  }

  // What user code finds. Replaced streams and consoles are put right before
  // each run.

  function ownStreams() {
    for (const [name, i] of [['stdout', 1], ['stderr', 2]]) {
      if (streams[i].writableEnded || streams[i].destroyed) streams[i] = output(i);
      defineProperty(process, name, { value: streams[i], configurable: true, enumerable: true, writable: true });
    }
    const run = current;
    let stdin;
    defineProperty(process, 'stdin', {
      get: () => (stdin ||= inputStream(run)), set: (other) => { stdin = other; }, configurable: true, enumerable: true,
    });
    let c = spare;
    try { c = ownConsole(streams[1], streams[2]); } catch { /* Bun makes it of what the user broke */ }
    defineProperty(root, 'console', { value: c, configurable: true, enumerable: false, writable: true });
  }

  function ownConsole(stdout, stderr) {
    // Ours have no errors, and looking out for them takes longer than printing.
    const c = new Console({ stdout, stderr, ignoreErrors: false });
    c.Console = Console;
    return c;
  }

  const spare = ownConsole(...[1, 2].map((i) => ({ write: (...args) => streams[i].write(...args) })));

  function ownGlobals() {
    const main = { exports: {}, id: '.', filename: '', loaded: false, children: [], paths: [] };
    const own = (name) => createRequire(path.join(cwd(), 'cell.js'))(name);
    own.resolve = (name, options) => createRequire(path.join(cwd(), 'cell.js')).resolve(name, options);
    own.cache = require.cache;
    own.extensions = require.extensions;
    own.main = main;
    main.require = own;
    const globals = { require: own, module: main, exports: main.exports, display, input };
    for (const name of keys(globals)) {
      defineProperty(root, name, { value: globals[name], configurable: true, enumerable: false, writable: true });
    }
    for (const name of ['__filename', '__dirname']) {
      defineProperty(root, name, { get: () => (name === '__dirname' ? cwd() : path.join(cwd(), 'cell.js')), configurable: true, enumerable: false });
    }
    declare.load = load;
    defineProperty(root, HELPER, { value: declare, configurable: false, enumerable: false, writable: false });
    process.exit = (code) => {
      const n = code === undefined ? process.exitCode || 0 : code;
      process.exitCode = noCode;
      const run = current;
      if (!run) return undefined;
      const exit = new Exit(Number(n) & 255);
      run.stop(exit);
      throw exit;
    };
    process.argv.splice(1);
  }

  class Exit {
    constructor(code) { this.code = code; }
  }

  class Interrupted extends Error {
    constructor() {
      super('the run was interrupted');
      this.name = 'Interrupted';
      this.stack = 'Interrupted: the run was interrupted';
    }
  }

  // declare gives the global object accessors for what a cell declares.
  function declare(names) {
    const run = current;
    for (const name of keys(names)) {
      const [get, set] = names[name];
      const before = getOwnPropertyDescriptor(root, name);
      try {
        defineProperty(root, name, { get, set, configurable: true, enumerable: true });
        accessors.set(name, get);
        if (run) run.declared.push({ name, get, before });
      } catch {
        if (run) run.assigned.push({ name, get }); // not ours to redefine
      }
    }
  }

  // unset prepares names that a script declares by var or function.
  function unset(names) {
    for (const name of names) {
      const old = getOwnPropertyDescriptor(root, name);
      if (old && !(old.get && accessors.get(name) === old.get)) continue;
      let value;
      try { value = old ? old.get() : undefined; } catch { value = undefined; }
      accessors.delete(name);
      defineProperty(root, name, { value, configurable: true, enumerable: true, writable: true });
    }
  }

  // settle puts back what a failed cell declared but never set.
  function settle(run, failed) {
    for (const { name, get } of run.assigned) {
      try { root[name] = get(); } catch { /* never set */ }
    }
    if (!failed) return;
    for (const { name, get, before } of run.declared.reverse()) {
      try {
        get();
      } catch {
        if (accessors.get(name) !== get) continue;
        accessors.delete(name);
        if (before) {
          defineProperty(root, name, before);
          if (before.get) accessors.set(name, before.get);
        } else {
          delete root[name];
        }
      }
    }
  }

  // Results.

  function base64(value) {
    if (isBuffer(value) || value instanceof Uint8Array) {
      return from(value.buffer, value.byteOffset, value.byteLength).toString('base64');
    }
    return value;
  }

  function isBundle(o) {
    if (o === null || typeof o !== 'object') return false;
    const names = keys(o);
    return names.length > 0 && names.every((n) => /^(text|image|application|audio|video)\/[\w.+-]+$/.test(n));
  }

  function clean(data) {
    const out = {};
    for (const mime of keys(data)) {
      let v = data[mime];
      if (v === undefined || v === null) continue;
      if (isBuffer(v) && (mime.startsWith('text/') || mime === 'image/svg+xml')) v = v.toString();
      out[mime] = base64(v);
    }
    return out;
  }

  function call(value, name) {
    try {
      const f = value[name];
      return typeof f === 'function' ? f.call(value) : undefined;
    } catch {
      return undefined;
    }
  }

  const METHODS = [['_repr_html_', 'text/html'], ['_repr_markdown_', 'text/markdown'], ['_repr_svg_', 'image/svg+xml'],
    ['_repr_png_', 'image/png'], ['_repr_jpeg_', 'image/jpeg'], ['_repr_latex_', 'text/latex'], ['_repr_json_', 'application/json']];

  function bundle(value) {
    let text;
    try {
      text = inspect(value, { depth: 4, maxArrayLength: 200, maxStringLength: MAX_TEXT, breakLength: 100 });
    } catch (e) {
      text = '<value that cannot be inspected: ' + e + '>';
    }
    const data = { 'text/plain': text };
    if (value !== null && (typeof value === 'object' || typeof value === 'function')) {
      const own = call(value, Symbol.for('Jupyter.display')) || call(value, '_repr_mimebundle_');
      if (own && typeof own === 'object' && isBundle(own)) return { ...data, ...clean(own) };
      if (!isProxy(value)) {
        for (const [name, mime] of METHODS) {
          const made = call(value, name);
          if (made !== undefined && made !== null) data[mime] = base64(made);
        }
      }
    }
    return data;
  }

  function publish(data, main) {
    let size = 0;
    for (const mime of keys(data)) {
      if (typeof data[mime] !== 'string') continue;
      if (mime.startsWith('text/') && data[mime].length > MAX_TEXT) {
        data[mime] = data[mime].slice(0, MAX_TEXT) + '\n... (' + (data[mime].length - MAX_TEXT) + ' more characters)';
      }
      size += data[mime].length;
    }
    if (size > MAX_EVENT) {
      for (const mime of keys(data)) if (typeof data[mime] === 'string' && data[mime].length > MAX_TEXT) delete data[mime];
      data['text/plain'] = (data['text/plain'] || '') + '\n(a result too large to show was left out)';
    }
    const store = runs.getStore();
    send({ ev: 'result', id: store === undefined ? (current ? current.id : 0) : store, main, data }, !main);
  }

  // display shows values as results; an object whose keys are MIME types is
  // shown as these.
  function display(...values) {
    for (const value of values) publish(isBundle(value) ? clean(value) : bundle(value), false);
  }

  // Errors.

  const OURS_TOO = /[( ](node:|native:|unknown\))/;

  // An error tells places in what was compiled. places makes them those in what
  // the user wrote, for the cells where they differ.
  function places(stack) {
    return stack.replace(/(<cell \d+>):(\d+)(:\d+)?/g, (all, file, line, column = '') => {
      const cell = cells.get(file);
      if (!cell) return all;
      if (cell.stripped !== undefined) {
        if (!cell.lines) cell.lines = align(cell.source, cell.stripped);
        return file + ':' + (cell.lines[line - 1] || '?');
      }
      return file + ':' + line + (line === '1' && column ? ':' + (column.slice(1) - cell.offset) : column);
    });
  }

  // newest returns the last run whose code an error went through.
  function newest(e) {
    let id;
    try {
      for (const [file] of e.stack.matchAll(/<cell \d+>/g)) {
        const cell = cells.get(file);
        if (cell && !(id > cell.id)) id = cell.id;
      }
    } catch { /* no error, or a strange one */ }
    return id;
  }

  function describe(e, cell) {
    let name = 'Error';
    let value = '';
    let stack = '';
    try {
      if (e !== null && typeof e === 'object' && ('stack' in e || 'message' in e)) {
        name = String(e.name || (e.constructor && e.constructor.name) || 'Error');
        value = String(e.message);
        stack = String(e.stack || name + ': ' + value);
        if (e.cause !== undefined) stack += '\n[cause]: ' + inspect(e.cause);
        if (isArray(e.errors)) stack += '\n[errors]: ' + inspect(e.errors);
      } else {
        name = typeof e;
        value = inspect(e);
        stack = 'Uncaught ' + value;
      }
    } catch {
      stack = stack || 'an error that cannot be described';
    }
    stack = places(stack).split('\n').filter((l) => !/^\s+at /.test(l) || !(l.includes(HERE) || OURS_TOO.test(l))).join('\n');
    let line = 0;
    const m = new RegExp(cell.file.replace(/[<>]/g, '\\$&') + ':(\\d+)').exec(stack);
    if (m) line = Number(m[1]);
    if (stack.length > MAX_STACK) stack = stack.slice(0, MAX_STACK) + '\n...';
    return { ev: 'error', id: cell.id, name: name.slice(0, 200), value: value.slice(0, MAX_STACK), traceback: stack, line,
      text: line ? (cell.source.split('\n')[line - 1] || '').slice(0, 1000) : '' };
  }

  // Runs.

  // strip returns a cell of TypeScript without types. Where that moved lines the
  // run keeps it, to find out what was where.
  function strip(run) {
    const { source } = run;
    if (typeof stripTypeScriptTypes === 'function') {
      try {
        return stripTypeScriptTypes(source, { mode: 'strip' });
      } catch (e) {
        if (e.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') {
          if (e.stack[0] === ':') e.stack = run.file + e.stack; // a line of a file without a name
          throw e;
        }
        return run.stripped = stripTypeScriptTypes(source, { mode: 'transform' });
      }
    }
    if (bun) return run.stripped = stripByBun(source, run.file);
    for (const name of ['typescript', 'amaro', 'sucrase', 'esbuild']) {
      let found;
      try {
        found = createRequire(path.join(cwd(), 'cell.js'))(name);
      } catch {
        continue;
      }
      if (name === 'typescript') {
        return run.stripped = found.transpileModule(source, { compilerOptions: { target: 'ESNext', module: 'ESNext', verbatimModuleSyntax: true } }).outputText;
      }
      if (name === 'sucrase') return found.transform(source, { transforms: ['typescript'], disableESTransforms: true }).code;
      if (name === 'esbuild') return run.stripped = found.transformSync(source, { loader: 'ts', format: 'esm' }).code;
      return found.transformSync(source, { mode: 'strip-only' }).code;
    }
    const e = new Error('TypeScript needs Node 22.13 or newer, Bun, or one of the packages typescript, amaro, sucrase and esbuild; this is Node ' + process.version);
    e.name = 'Unsupported';
    e.stack = 'Unsupported: ' + e.message;
    throw e;
  }

  function remember(run) {
    cells.set(run.file, run);
    cells.delete('<cell ' + (count - MAX_CELLS) + '>');
  }

  function stripByBun(source, file) {
    const own = { __dirname: 'globalThis.__dirname', __filename: 'globalThis.__filename', 'process.env.NODE_ENV': 'process.env.NODE_ENV' };
    try {
      return new Transpiler({ loader: 'ts', target: 'node', deadCodeElimination: false, define: own }).transformSync(source);
    } catch (e) {
      const first = e.errors ? e.errors[0] : e;
      const made = new SyntaxError(first.message);
      made.stack = 'SyntaxError: ' + first.message + (first.position ? '\n    at ' + file + ':' + first.position.line + ':' + first.position.column : '');
      throw made;
    }
  }

  function compile(run) {
    const options = { filename: run.file, importModuleDynamically: ownLoader };
    let source = run.source;
    if (run.typescript) source = strip(run);
    // Bun does not know of offsets.
    if (bun || run.stripped !== undefined) remember(run);
    if (/^\s*\{[^]*\}\s*$/.test(source)) {
      // An object more likely than a block, if it can be one.
      try {
        return { script: new Script('(' + source + '\n)', { ...options, columnOffset: -1 }), shows: true, globals: [], waits: false };
      } catch { /* a block */ }
    }
    let t;
    try {
      t = transform(source, HELPER, ownLoader ? '' : HELPER + '.load');
    } catch {
      // What we cannot read, the engine either explains or runs as it is.
      return { script: new Script(source, options), shows: true, globals: [], waits: false };
    }
    try {
      if (bun) run.offset = t.offset;
      return { ...t, script: new Script(t.code, { ...options, columnOffset: -t.offset }) };
    } catch (e) {
      if (!(e instanceof SyntaxError)) throw e;
      // The same error without what we put around it, if there is one.
      if (!t.waits) new Script(source, options);
      throw e;
    }
  }

  // Where the engine's own loader cannot be had for a script, the transform
  // puts load in the place of import.
  const ownLoader = constants && constants.USE_MAIN_CONTEXT_DEFAULT_LOADER;

  function load(name, options) {
    const spec = String(name);
    if (/^(\.{0,2}\/)/.test(spec)) return boot.load(pathToFileURL(path.resolve(cwd(), spec)).href, options);
    if (/^(node|file|data):/.test(spec) || builtinModules.includes(spec)) return boot.load(spec, options);
    let file;
    try {
      file = createRequire(path.join(cwd(), 'cell.js')).resolve(spec);
    } catch {
      return boot.load(spec, options); // one that cannot be required
    }
    return boot.load(pathToFileURL(file).href, options);
  }

  async function execute(request) {
    count++;
    const run = {
      id: request.id, source: request.code, file: '<cell ' + count + '>', typescript: request.language === 'typescript', offset: 0,
      declared: [], assigned: [], stop: null, failed: false, answers: Boolean(request.stdin), questions: [],
    };
    const end = { ev: 'end', id: run.id, count, status: 'ok' };
    const base = request.base || {};
    for (const name of keys(base)) process.env[name] = base[name];
    const env = request.env || {};
    const saved = {};
    for (const name of keys(env)) {
      saved[name] = process.env[name];
      process.env[name] = env[name];
    }
    heal();
    writes = 0;
    current = run;
    ownStreams();
    // Node itself defines some of these names after its first script.
    if (count === 1) ownGlobals();
    process.exitCode = noCode;
    const stopped = new Promise((_, reject) => { run.stop = reject; });
    stopped.catch(() => {});
    run.fail = (e) => {
      run.failed = true;
      if (end.status === 'ok') end.status = e instanceof Interrupted ? 'interrupted' : 'error';
      send(describe(e, run));
    };
    try {
      const compiled = compile(run);
      unset(compiled.globals);
      let value = runs.run(run.id, () => compiled.script.runInThisContext({ displayErrors: !bun, breakOnSigint: true }));
      if (compiled.waits || isPromise(value)) value = await race([value, stopped]);
      if (compiled.shows && value !== undefined) publish(bundle(value), true);
    } catch (e) {
      if (e instanceof Exit) {
        end.exit_code = e.code;
        if (e.code !== 0) end.status = 'exit';
      } else {
        run.fail(e && e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? new Interrupted() : e);
      }
    }
    settle(run, run.failed);
    if (end.status === 'ok' && process.exitCode) {
      end.exit_code = Number(process.exitCode) & 255;
      end.status = 'exit';
    }
    process.exitCode = noCode;
    for (const name of keys(saved)) {
      if (saved[name] === undefined) delete process.env[name];
      else process.env[name] = saved[name];
    }
    heal();
    current = null;
    send(end);
  }

  // What nobody caught: part of the run it came from, or late.
  function uncaught(e) {
    if (e instanceof Exit) return; // its run was told
    let run = runs.getStore();
    if (run === undefined && bun) run = newest(e); // of a promise it does not know
    if (current && (run === undefined || run === current.id)) {
      current.fail(e);
      return;
    }
    send({ ev: 'late', stream: 'stderr', id: run || 0, text: 'Uncaught ' + inspect(e) + '\n' });
  }

  function interrupt() {
    if (current) current.stop(new Interrupted());
  }

  function guard() {
    for (const [name, f] of [['uncaughtException', uncaught], ['unhandledRejection', uncaught], ['SIGINT', interrupt]]) {
      if (!process.listeners(name).includes(f)) process.prependListener(name, f);
    }
  }

  async function handle(request) {
    guard();
    if (request.op === 'run') await execute(request);
    else if (request.op === 'ping') send({ ev: 'pong' });
    else if (request.op === 'prepare') send({ ev: 'prepared', failed: prepare(request.modules || []) });
  }

  function prepare(names) {
    const failed = {};
    for (const name of names) {
      try {
        createRequire(path.join(cwd(), 'cell.js'))(name);
      } catch (e) {
        failed[name] = String(e && e.message).split('\n')[0];
      }
    }
    return failed;
  }

  // Requests.

  const init = parse(boot.take(boot.take(4).readUInt32BE(0)).toString());
  key = init.key;
  ({ transform, align } = vm.runInThisContext(init.transform, { filename: HERE }));
  process.removeAllListeners('warning');
  ownStreams();
  flushBeforePrograms();
  guard();
  send({ ev: 'ready', language: 'javascript', version: bun ? 'bun-' + bun : process.version.replace(/^v/, ''), executable: process.execPath });
  prepare(init.prepare || []);

  let buffered = alloc(0);
  let work = Promise.resolve();
  // Bun has no sockets of descriptors. Where it reads a file, which it can, a
  // thread waits.
  const pipe = bun ? fs.createReadStream('', { fd: REQUESTS }) : new net.Socket({ fd: REQUESTS, readable: true, writable: false });
  pipe.on('data', (data) => {
    buffered = buffered.length ? concat([buffered, data]) : data;
    for (;;) {
      if (buffered.length < 4) return;
      const n = buffered.readUInt32BE(0);
      if (buffered.length < 4 + n) return;
      const request = parse(buffered.subarray(4, 4 + n).toString());
      buffered = buffered.subarray(4 + n);
      if (request.op === 'input') { answer(request); continue; }
      work = work.then(() => handle(request)).catch((e) => {
        putFailure(e);
        reallyExit(1);
      });
    }
  });
  pipe.on('end', () => reallyExit(0));
  pipe.on('error', () => reallyExit(0));

  function putFailure(e) {
    try { put(copies[2], from('the kernel failed: ' + (e && e.stack) + '\n')); } catch { /* nobody reads */ }
  }
})
