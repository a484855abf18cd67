// Tests of the JavaScript kernel: its runs, its state and what hostile code does.
'use strict';

const test = require('node:test');
const assert = require('node:assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { Kernel, bun } = require('./harness.js');

function kernel(t, options) {
  const k = new Kernel(options);
  t.after(() => k.close());
  k.ok = async (code, more) => {
    const r = await k.run(code, more);
    assert.strictEqual(r.status, 'ok', JSON.stringify(r.log));
    return r;
  };
  k.value = async (code, more) => (await k.ok(code, more)).main;
  k.fails = async (code, name, more) => {
    const r = await k.run(code, more);
    assert.strictEqual(r.status, 'error', JSON.stringify(r.log));
    assert.strictEqual(r.error.name, name);
    return r;
  };
  return k;
}

test('values and state', async (t) => {
  const k = kernel(t);
  assert.strictEqual(await k.value('1 + 1'), '2');
  assert.strictEqual(await k.value('const x = 41; let y = 1; function f() { return x + y }'), undefined);
  assert.strictEqual(await k.value('f()'), '42');
  await k.ok('y = 9');
  assert.strictEqual(await k.value('f()'), '50');
  assert.strictEqual(await k.value('({a: [1, "two"]})'), "{ a: [ 1, 'two' ] }");
  assert.strictEqual(await k.value('{a: 1}'), '{ a: 1 }');
  assert.strictEqual(await k.value('undefined'), undefined);
  assert.strictEqual(await k.value('null'), 'null');
  assert.strictEqual(await k.value(''), undefined);
  assert.strictEqual(await k.value('// nothing'), undefined);
  assert.strictEqual(await k.value('for (const i of [1, 2]) { i }'), undefined);
  assert.strictEqual(await k.value('if (true) { 5 }'), undefined);
  assert.strictEqual(await k.value('x // behind'), '41');
});

test('indented code', async (t) => {
  const k = kernel(t);
  const code = `
    const s = \`a
    b\`
    import fs from 'fs'
    await Promise.resolve()
    s + typeof fs
    `;
  assert.strictEqual(await k.value(code), "'a\\n    bobject'");
  const r = await k.fails('\n    const z = 1\n    throw new Error("x")\n    ', 'Error');
  assert.strictEqual(r.error.line, 3);
});

test('redeclaration', async (t) => {
  const k = kernel(t);
  for (const [first, second] of [['const', 'const'], ['let', 'const'], ['var', 'const'], ['const', 'var'], ['let', 'var'], ['var', 'let']]) {
    await k.ok(`${first} v = 1`);
    await k.ok(`${second} v = 2`);
    assert.strictEqual(await k.value('v'), '2', `${first} then ${second}`);
  }
  await k.ok('class A { m() { return 1 } }');
  await k.ok('class A { m() { return 2 } }');
  assert.strictEqual(await k.value('new A().m()'), '2');
  await k.ok('function g() { return 1 }');
  await k.ok('const g = () => 2');
  assert.strictEqual(await k.value('g()'), '2');
  await k.ok('function g() { return 3 }');
  assert.strictEqual(await k.value('g()'), '3');
  await k.ok('async function g() { return 4 }');
  assert.strictEqual(await k.value('await g()'), '4');
  await k.ok('const [a, {b, ...c}, d = [1, 2]] = [1, {b: 2, e: 3}]');
  assert.strictEqual(await k.value('[a, b, c, d]'), '[ 1, 2, { e: 3 }, [ 1, 2 ] ]');
  await k.ok('const fs = require("fs")');
  await k.ok('const fs = require("fs"), { join } = require("path")');
  assert.strictEqual(await k.value('join("a", typeof fs.readFileSync)'), "'a/function'");
  await k.ok('for (var loop = 0; loop < 3; loop++);');
  assert.strictEqual(await k.value('loop'), '3');
});

test('a constant stays constant', async (t) => {
  const k = kernel(t);
  await k.ok('const c = 1');
  await k.fails('c = 2', 'TypeError');
  assert.strictEqual(await k.value('c'), '1');
});

test('a failed cell does not lose what was there', async (t) => {
  const k = kernel(t);
  await k.ok('const a = 1, f = () => a');
  await k.fails('const before = 5; const a = missing()', 'ReferenceError');
  assert.strictEqual(await k.value('[a, before, f()]'), '[ 1, 5, 1 ]');
  await k.fails('const later = missing()', 'ReferenceError');
  await k.fails('later', 'ReferenceError');
  await k.ok('const later = 1');
});

test('await at the top', async (t) => {
  const k = kernel(t);
  assert.strictEqual(await k.value('const v = await Promise.resolve(3); v + 1'), '4');
  assert.strictEqual(await k.value('v'), '3');
  assert.strictEqual(await k.value('async function main() { await null; return 7 }\nmain()'), '7');
  assert.strictEqual(await k.value('`${await main()}`'), "'7'");
  assert.strictEqual(await k.value('for await (const x of [1]) { var seen = x }\nawait 5 // five'), '5');
  await k.fails('await Promise.reject(new RangeError("far"))', 'RangeError');
  assert.strictEqual(await k.value('await main() / 7'), '1');
});

test('modules', async (t) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'kernel-'));
  t.after(() => fs.rmSync(dir, { recursive: true }));
  fs.writeFileSync(path.join(dir, 'mine.js'), 'exports.v = 8');
  fs.writeFileSync(path.join(dir, 'esm.mjs'), 'export const w = 9; export default 10');
  fs.mkdirSync(path.join(dir, 'node_modules', 'pkg'), { recursive: true });
  fs.writeFileSync(path.join(dir, 'node_modules', 'pkg', 'index.js'), 'module.exports = 11');
  const k = kernel(t);
  await k.ok(`process.chdir(${JSON.stringify(dir)})`);
  assert.strictEqual(await k.value('require("./mine").v'), '8');
  assert.strictEqual(await k.value('(await import("./esm.mjs")).w'), '9');
  assert.strictEqual(await k.value('import ten, { w as nine } from "./esm.mjs"\nimport * as path from "path"\n[ten, nine, typeof path.join]'), "[ 10, 9, 'function' ]");
  assert.strictEqual(await k.value('require("pkg") + (await import("pkg")).default'), '22');
  assert.strictEqual(await k.value('import fs, { readFileSync } from "node:fs"\nfs.readFileSync === readFileSync'), 'true');
  assert.strictEqual(await k.value('require.main === module'), 'true');
  assert.strictEqual(await k.value('export const e = 12\ne'), '12');
  await k.fails('require("./absent")', bun ? 'ResolveMessage' : 'Error');
  // Bun would fetch it.
  await k.fails('require("left-pad")', bun ? 'ResolveMessage' : 'Error');
});

test('output and its order', async (t) => {
  const k = kernel(t);
  const r = await k.ok('console.log("a"); display(1); console.log("b"); console.error("c"); 2');
  assert.deepStrictEqual([r.stdout, r.stderr], ['a\nb\n', 'c\n']);
  assert.deepStrictEqual(r.kinds.slice(0, 3), ['stdout', 'result', 'stdout']);
  const s = await k.ok('process.stdout.write("x"); console.table([{ a: 1 }]); require("child_process").execSync("echo child", { stdio: "inherit" })');
  assert.match(s.stdout, /^x[^]*child\n$/);
  const much = await k.ok('for (let i = 0; i < 20000; i++) console.log("x".repeat(99))');
  assert.strictEqual(much.stdout.length, 2000000);
});

test('results', async (t) => {
  const k = kernel(t);
  assert.deepStrictEqual((await k.ok('display({ "image/png": Buffer.from("png"), "text/html": "<b>" })')).results, [{ 'image/png': 'cG5n', 'text/html': '<b>' }]);
  assert.deepStrictEqual((await k.ok('({ [Symbol.for("Jupyter.display")]() { return { "text/html": "<i>" } } })')).results[0]['text/html'], '<i>');
  assert.strictEqual((await k.ok('({ _repr_svg_: () => "<svg/>" })')).results[0]['image/svg+xml'], '<svg/>');
  const r = await k.ok('new Proxy({}, { get() { throw new Error("no") } })');
  assert.deepStrictEqual(Object.keys(r.results[0]), ['text/plain']);
  assert.ok((await k.value('"x".repeat(3000000)')).length < 2 << 20);
  assert.match(await k.value('({ [require("util").inspect.custom]() { throw new Error("odd") } })'), /cannot be inspected/);
});

test('errors', async (t) => {
  const k = kernel(t);
  let r = await k.fails('const one = 1;\nfunction bad() {\n  throw new TypeError("wrong")\n}\nbad()', 'TypeError');
  assert.deepStrictEqual([r.error.value, r.error.line, r.error.text], ['wrong', 3, '  throw new TypeError("wrong")']);
  // Bun's columns are the ends.
  assert.match(r.error.traceback, bun ? /at bad \(<cell 1>:3:22\)\n\s+at <cell 1>:5:4$/ : /at bad \(<cell 1>:3:9\)\n\s+at <cell 1>:5:1/);
  assert.doesNotMatch(r.error.traceback, /glovebox|node:/);
  r = await k.fails('let first = missing', 'ReferenceError');
  assert.match(r.error.traceback, bun ? /<cell 2>:1:20/ : /<cell 2>:1:13/);
  r = await k.fails('const = 5', 'SyntaxError');
  assert.strictEqual(r.error.line, 1);
  await k.fails('let twice = 1\nlet twice = 2', 'SyntaxError');
  await k.fails('function f( {', 'SyntaxError');
  await k.fails('}', 'SyntaxError');
  assert.strictEqual((await k.fails('throw "text"', 'string')).error.value, "'text'");
  await k.fails('throw null', 'object');
  r = await k.fails('setTimeout(() => { throw new RangeError("late") }, 10); await new Promise((f) => setTimeout(f, 100))', 'RangeError');
  await k.fails('Promise.reject(new EvalError("nobody")); await new Promise((f) => setTimeout(f, 50))', 'EvalError');
  assert.strictEqual(await k.value('1'), '1');
});

test('exit ends the run and not the kernel', async (t) => {
  const k = kernel(t);
  await k.ok('const x = 5');
  for (const [code, status, n] of [['process.exit(3)', 'exit', 3], ['process.exit()', 'ok', 0], ['process.exitCode = 4', 'exit', 4],
    ['setTimeout(() => process.exit(2), 10); await new Promise(() => {})', 'exit', 2]]) {
    const r = await k.run(code);
    assert.deepStrictEqual([r.status, r.end.exit_code], [status, n], code);
  }
  assert.strictEqual(await k.value('x'), '5');
});

test('interrupt keeps the state', async (t) => {
  const k = kernel(t);
  await k.ok('let n = 0');
  assert.strictEqual((await k.run('while (true) n++', { interrupt: 300 })).status, 'interrupted');
  assert.strictEqual(await k.value('n > 0'), 'true');
  assert.strictEqual((await k.run('await new Promise(() => {})', { interrupt: 300 })).status, 'interrupted');
  k.child.kill('SIGINT');
  await new Promise((f) => setTimeout(f, 100));
  assert.strictEqual(await k.value('n > 0'), 'true');
});

test('what a run leaves behind is late, not the next one\'s', async (t) => {
  const k = kernel(t);
  await k.ok('setTimeout(() => console.log("late"), 100); setTimeout(() => Promise.reject(new Error("lost")), 100)');
  const r = await k.ok('console.log("mine"); await new Promise((f) => setTimeout(f, 300)); console.log("too")');
  assert.strictEqual(r.stdout, 'mine\ntoo\n');
  assert.deepStrictEqual(r.late.map((e) => e.id), [1, 1]);
  assert.match(r.late.map((e) => e.text).join(''), /late\n[^]*lost/);
});

test('much output gathers, and is complete and in order', async (t) => {
  const k = kernel(t);
  const lines = (from, to) => Array.from({ length: to - from }, (_, i) => (from + i) + '\n').join('');
  for (let again = 0; again < 2; again++) {
    let r = await k.ok(`for (let i = 0; i < 30000; i++) console.log(i);
      require('child_process').execSync('echo program', { stdio: 'inherit' });
      console.log('x'.repeat(300000));
      for (let i = 0; i < 1000; i++) { console.log(i); console.error(i) }
      await require('util').promisify(require('child_process').exec)('true');
      process.stdout.write('end'); process.stdout.write('', () => console.log('told')); await null`);
    assert.strictEqual(r.stdout.slice(0, r.stdout.indexOf('end') + 3), lines(0, 30000) + 'program\n' + 'x'.repeat(300000) + '\n' + lines(0, 1000) + 'end');
    assert.strictEqual(r.stderr, lines(0, 1000));
    // Results come in their place.
    r = await k.ok('for (let i = 0; i < 5000; i++) console.log(i); display(1); console.log("after"); undefined');
    assert.deepStrictEqual(r.kinds.slice(-3), ['stdout', 'result', 'stdout']);
    // What waits for nothing else comes before the code goes on.
    const busy = k.run('for (let i = 0; i < 5000; i++) console.log(i); console.log("last"); for (const t = Date.now(); Date.now() - t < 1500;);');
    await k.until(() => k.log.some(([kind, text]) => kind === 'stdout' && text.includes('last')));
    assert.ok(!k.log.some(([kind]) => kind === 'end'), 'it came only at the end');
    await busy;
    // Nor is it in the way of what stops a run.
    r = await k.run('for (;;) console.log("again and again")', { interrupt: 300 });
    assert.strictEqual(r.status, 'interrupted');
    assert.match(r.stdout, /^(again and again\n)*(again and aga?i?n?)?/);
    assert.strictEqual((await k.ok('console.log("next")')).stdout, 'next\n');
  }
});

test('input', async (t) => {
  const k = kernel(t);
  let r = await k.ok('const [one, two] = await Promise.all([input("one? "), input("two? ")]); [one, two]', { lines: ['a\n', 'b\n'] });
  assert.deepStrictEqual([r.main, r.prompts], ["[ 'a', 'b' ]", ['one? ', 'two? ']]);
  r = await k.ok('let all = ""; for await (const line of require("readline").createInterface({ input: process.stdin })) all += line + "/"; all', { lines: ['c\n', 'd\n'] });
  assert.strictEqual(r.main, "'c/d/'");
  r = await k.ok('const ask = require("readline/promises").createInterface({ input: process.stdin, output: process.stdout }); const name = await ask.question("name? "); ask.close(); name', { lines: ['e\n', 'f\n'] });
  assert.deepStrictEqual([r.main, r.stdout], ["'e'", 'name? ']);
  assert.match((await k.fails('await input()', 'Error', { lines: [] })).error.value, /end of input/);
  assert.match((await k.fails('await input("who?")', 'Error')).error.value, /nobody can answer in this run/);
  assert.match((await k.fails('for await (const chunk of process.stdin);', 'Error')).error.value, /nobody can answer in this run/);
  await k.ok('setTimeout(() => input().catch((e) => console.log(e.message)), 50)', { lines: [] });
  await new Promise((f) => setTimeout(f, 200)); // between two runs
  r = await k.ok('setTimeout(() => input().catch((e) => console.log(e.message)), 50)', { lines: [] });
  assert.deepStrictEqual(r.late.map((e) => e.text), ['the run that asks for input has ended\n']);
  r = await k.ok('await new Promise((f) => setTimeout(f, 200)); await input()', { lines: ['mine\n'] });
  assert.deepStrictEqual([r.main, r.late.map((e) => e.text)], ["'mine'", ['the run that asks for input has ended\n']]);
});

test('environment of a run', async (t) => {
  const k = kernel(t);
  assert.strictEqual(await k.value('process.env.A', { env: { A: '1' } }), "'1'");
  assert.strictEqual(await k.value('process.env.A'), undefined);
});

test('hostile code', async (t) => {
  const k = kernel(t);
  const after = async () => assert.strictEqual((await k.ok('console.log("next"); 1 + 1')).stdout, 'next\n');
  await k.ok('process.stdout = console = null');
  await after();
  await k.ok('process.stdout.end(); process.stderr.destroy()');
  await after();
  await k.ok('JSON.stringify = Buffer.from = require("fs").writeSync = Promise.race = Object.keys = () => { throw new Error("broken") }', {});
  await after();
  await k.fails('(function f() { f() })()', 'RangeError');
  await after();
  await k.ok('process.removeAllListeners(); void 0');
  assert.strictEqual((await k.run('while (true);', { interrupt: 300 })).status, 'interrupted');
  await after();
  await k.ok('globalThis.Promise = globalThis.Error = globalThis.Object = undefined');
  assert.strictEqual(await k.value('1 + 1'), '2');
});

test('typescript', async (t) => {
  const k = kernel(t);
  const code = 'interface P { x: number }\nconst p: P = { x: 1 };\nfunction id<T>(v: T): T { return v }\nid<number>(p.x) as number';
  if (!bun && typeof require('module').stripTypeScriptTypes !== 'function') {
    const r = await k.fails(code, 'Unsupported', { language: 'typescript' });
    assert.match(r.error.value, /needs Node 22\.13/);
    return;
  }
  assert.strictEqual(await k.value(code, { language: 'typescript' }), '1');
  assert.strictEqual(await k.value('enum E { A = 4 }\nE.A', { language: 'typescript' }), '4');
  const r = await k.fails('const q: number = 1\nthrow new Error("here")', 'Error', { language: 'typescript' });
  assert.strictEqual(r.error.line, 2);
  assert.strictEqual(r.stderr, '');
});

test('typescript keeps its places', { skip: !bun && typeof require('module').stripTypeScriptTypes !== 'function' }, async (t) => {
  const k = kernel(t);
  const ts = { language: 'typescript' };
  await k.ok(`interface Point {
  x: number
}

type Made = { const: string } | Point

// A comment.
function fails(p: Point, ...rest: Array<string>): Made {
  if (p.x) {

    throw new RangeError('at ' + p.x)
  }
  return p
}
const here = [__dirname, __filename, process.env.NODE_ENV]`, ts);
  let r = await k.fails('let a: number = 1\n\nenum Kind { A, B }\n\nfails({ x: Kind.B as number })', 'RangeError', ts);
  assert.deepStrictEqual([r.error.line, r.error.text], [5, 'fails({ x: Kind.B as number })']);
  assert.match(r.error.traceback, /<cell 1>:11[^]*<cell 2>:5\b/);
  r = await k.fails('let b: number = 1\n\nlet c: = 5', 'SyntaxError', ts);
  assert.strictEqual(r.error.line, 3);
  assert.match(r.error.traceback, /SyntaxError/);
  assert.strictEqual(await k.value('here[0] === process.cwd() && here[1].endsWith("cell.js") && here[2] === undefined', ts), 'true');
  assert.strictEqual(await k.value('import { join, type ParsedPath } from "node:path"\nconst last: string = join("a", "b")\nlast', ts), "'a/b'");
  assert.strictEqual(await k.value('const last: number = await Promise.resolve<number>(4); last', ts), '4');
  await k.fails('last = 5', 'TypeError', ts);
});

test('other requests', async (t) => {
  const k = kernel(t, { prepare: ['zlib', 'no-such-module'] });
  await k.ok('1');
  k.send({ op: 'ping' });
  await k.event('pong');
  k.send({ op: 'prepare', modules: ['no-such-module'] });
  assert.deepStrictEqual(Object.keys((await k.event('prepared')).failed), ['no-such-module']);
});
