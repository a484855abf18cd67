// Tests of the transformation of cells, on what is easy to get wrong.
'use strict';

const test = require('node:test');
const assert = require('node:assert');
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const { transform, align } = vm.runInThisContext(fs.readFileSync(path.join(__dirname, 'transform.js'), 'utf8'));

function names(source) {
  const t = transform(source, 'H');
  new vm.Script(t.code);
  const m = /H\((\{.*?\]\})\);/.exec(t.code);
  const declared = m ? [...m[1].matchAll(/"([^"]+)":\[/g)].map((x) => x[1]) : [];
  return { declared, globals: t.globals, waits: t.waits, shows: t.shows };
}

for (const [source, declared, globals, shows] of [
  ['let a = 1\nfoo(x), y', ['a'], [], true],
  ['let a = 1, b = f(x, y), c;\nd', ['a', 'b', 'c'], [], true],
  ['let a = 1\n  , b = 2', ['a', 'b'], [], false],
  ['let a = b\n(c)\nlet d', ['a', 'd'], [], false],
  ['let a = x => { return { b: 1 } }\nlet c = async (y) => y', ['a', 'c'], [], false],
  ['const { a, b: c, d: { e = [1, 2], ...f } = {}, [g]: h } = i', ['a', 'c', 'e', 'f', 'h'], [], false],
  ['const [a, , b = (1, 2), [c], ...d] = e, z = 1', ['a', 'b', 'c', 'd', 'z'], [], false],
  ['const r = /[/"]\\/`/g, s = a / b / c', ['r', 's'], [], false],
  ['const t = `a${`b${"}"}` + {c: 1}.c}d`, u = 1', ['t', 'u'], [], false],
  ['const q = a ? /x/ : b[0] / 2\nconst v = 1', ['q', 'v'], [], false],
  ['class A extends (class B {}) { static x = { y: 1 }; #z = 1; get w() { return this.#z } }\nclass C {}', ['A', 'C'], [], false],
  ['function f(a = {}) { let inner }\nvar v\nfunction* g() {}\nasync function h() {}', ['g', 'h'], ['f', 'v'], false],
  ['if (a) { let x } else { var y }\nfor (let i of []) ;\nfor (var j in {}, k) ;', [], ['j'], false],
  ['label: for (const x of []) { continue label }\nlet after', ['after'], [], false],
  ['do x++; while (x < 3)\nlet y = 1', ['y'], [], false],
  ['try { let a } catch { let b } finally { let c }\nlet d', ['d'], [], false],
  ['switch (x) { case 1: let y }\nlet z', ['z'], [], false],
  ['let x = 1 /* c\n*/ let_ = 2', ['x'], [], true],
  ['a = b\n++c', [], [], true],
  ['x\n  .map(y => y)\n  .filter(Boolean)', [], [], true],
  ['"use strict"; let s', ['s'], [], false],
  ['let größe = 1, $a_1 = 2', ['größe', '$a_1'], [], false],
  ['let let_of = of, get = set', ['let_of', 'get'], [], false],
  ['#!/usr/bin/env node\nlet a', ['a'], [], false],
  ['while (a) /re/.test(b)\nlet c', ['c'], [], false],
  ['let a = b\n/c/.d\nlet e'.replace('/.', '/ '), ['a', 'e'], [], false],
  ['if (a) b\nelse if (c) d\nelse { e }\nlet f', ['f'], [], false],
]) {
  test(JSON.stringify(source), () => {
    const n = names(source);
    assert.deepStrictEqual([n.declared, n.globals, n.shows], [declared, globals, shows]);
  });
}

test('await', () => {
  for (const source of ['await x', 'x = `${await y}`', 'for await (const a of b) ;', 'import "x"', 'let f = async () => await g']) {
    assert.strictEqual(names(source).waits, true, source);
  }
  for (const source of ['"await x"', '// await', '`await ${1}`', 'x.awaits']) {
    assert.strictEqual(names(source).waits, false, source);
  }
});

test('imports', () => {
  const code = (s) => transform(s, 'H').code.replace(/H\(.*?\]\}\);/, '');
  assert.match(code('import a from "b"'), /const \{ default: a \} = await import\("b"\);/);
  assert.match(code('import a, {b as c, default as d} from "e"'), /const \{ default: a, b: c, default: d \} = await import\("e"\);/);
  assert.match(code('import a, * as b from "c"; b'), /const b = await import\("c"\), \{ default: a \} = b;/);
  assert.match(code('import x from "./y.json" with { type: "json" }'), /await import\("\.\/y\.json", \{ with: \{ type: "json" \} \}\)/);
  assert.match(code('import "only"'), /await import\("only"\);/);
  assert.strictEqual(code('import {\n a,\n b\n} from "c"\nx').split('\n').length, 6);
});

test('lines of what a compiler made', () => {
  assert.deepStrictEqual(align('\n\na\nb {\n\n  c\n}', 'a; b {\nextra;\n c }'), [3, 3, 6]);
  assert.deepStrictEqual(align("let s: string = 'x'\n\n'y'", 'let s = "x";\n"y";'), [1, 3]);
  assert.deepStrictEqual(align('', 'a'), []);
  assert.deepStrictEqual(align('"', 'a'), []);
  assert.deepStrictEqual(align('a\n'.repeat(3000), 'a\n'.repeat(3000)), []);
});
