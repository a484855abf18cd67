// Makes a cell of JavaScript into a script: what it declares at the top stays
// for the cells that follow, which may declare it again; it may await at the
// top and import modules; and the value of its last expression is known.
//
// Declarations are left as they are, inside a block or an async function of
// the cell's own. For each name the global object gets an accessor that
// closes over it. So nothing is rewritten but static imports and the last
// expression of a cell that awaits, and for that a tokenizer is enough.
(function () {
  'use strict';

  const WORD = /[\p{ID_Start}$_\\#][\p{ID_Continue}$\u200c\u200d\\]*/uy;
  const NUMBER = /0[xXbBoO][\da-fA-F_]+n?|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d[\d_]*)?n?/y;
  const PUNCTUATION = /\.\.\.|=>|>>>=|>>>|<<=|>>=|\*\*=|&&=|\|\|=|\?\?=|===|!==|\*\*|<<|>>|<=|>=|==|!=|\+\+|--|&&|\|\||\?\?|\?\.(?!\d)|\+=|-=|\*=|\/=|%=|&=|\|=|\^=|[{}()[\];,<>+\-*\/%&|^!~?:=.@]/y;
  // Words after which an operand comes.
  const PREFIX = new Set(['return', 'typeof', 'case', 'in', 'of', 'delete', 'void', 'throw', 'new', 'do', 'else',
    'instanceof', 'await', 'yield', 'extends', 'default']);

  // tokens splits source. It throws a SyntaxError where it is lost.
  function tokens(source) {
    const list = [];
    const brackets = [];
    let at = 0;
    let newline = false;
    if (source.startsWith('#!')) at = lineEnd(source, 0);
    const push = (kind, end) => {
      list.push({ kind, text: source.slice(at, end), start: at, end, newline });
      at = end;
      newline = false;
    };
    const match = (re) => {
      re.lastIndex = at;
      const m = re.exec(source);
      return m ? re.lastIndex : -1;
    };
    while (at < source.length) {
      const c = source[at];
      if (c === '\n' || c === '\r' || c === '\u2028' || c === '\u2029') { newline = true; at++; continue; }
      if (/\s|\ufeff/.test(c)) { at++; continue; }
      if (c === '/' && source[at + 1] === '/') { at = lineEnd(source, at); continue; }
      if (c === '/' && source[at + 1] === '*') {
        const end = source.indexOf('*/', at + 2);
        if (end < 0) throw new SyntaxError('unterminated comment');
        if (/[\n\r\u2028\u2029]/.test(source.slice(at, end))) newline = true;
        at = end + 2;
        continue;
      }
      if (c === '"' || c === "'") { push('string', stringEnd(source, at)); continue; }
      if (c === '`') {
        const awaits = [];
        const end = templateEnd(source, at, awaits);
        push('template', end);
        list[list.length - 1].awaits = awaits.length > 0;
        continue;
      }
      let end = match(WORD);
      if (end >= 0) { push('word', end); continue; }
      if (/\d/.test(c) || (c === '.' && /\d/.test(source[at + 1] || ''))) {
        end = match(NUMBER);
        push('number', end);
        continue;
      }
      const last = list[list.length - 1];
      if (c === '/' && regexMayFollow(last)) { push('regex', regexEnd(source, at)); continue; }
      end = match(PUNCTUATION);
      if (end < 0) throw new SyntaxError('unexpected character ' + c);
      const before = last;
      push('punctuation', end);
      const t = list[list.length - 1];
      if ('([{'.includes(t.text)) {
        t.head = before && before.kind === 'word' && ['if', 'while', 'for', 'with'].includes(before.text);
        t.block = t.text === '{' && blockMayFollow(before);
        brackets.push(t);
      } else if (')]}'.includes(t.text)) {
        t.open = brackets.pop();
        if (!t.open || '([{'.indexOf(t.open.text) !== ')]}'.indexOf(t.text)) throw new SyntaxError("unexpected '" + t.text + "'");
        t.open.close = list.length - 1;
      }
    }
    if (brackets.length) throw new SyntaxError("'" + brackets[0].text + "' is not closed");
    return list;
  }

  function lineEnd(source, at) {
    while (at < source.length && !/[\n\r\u2028\u2029]/.test(source[at])) at++;
    return at;
  }

  function stringEnd(source, at) {
    const quote = source[at++];
    for (; at < source.length; at++) {
      if (source[at] === '\\') at++;
      else if (source[at] === quote) return at + 1;
      else if (source[at] === '\n') break;
    }
    throw new SyntaxError('unterminated string');
  }

  // templateEnd skips a template literal; the awaits in it are pushed.
  function templateEnd(source, at, awaits) {
    for (at++; at < source.length; at++) {
      const c = source[at];
      if (c === '\\') at++;
      else if (c === '`') return at + 1;
      else if (c === '$' && source[at + 1] === '{') {
        const end = substitutionEnd(source, at + 2);
        for (const t of tokens(source.slice(at + 2, end))) {
          if (t.awaits || (t.kind === 'word' && t.text === 'await')) awaits.push(t);
        }
        at = end;
      }
    }
    throw new SyntaxError('unterminated template');
  }

  // substitutionEnd finds the brace that ends a substitution. What it holds
  // may have braces in strings, templates, comments and regular expressions.
  function substitutionEnd(source, at) {
    let depth = 0;
    let operand = true;
    while (at < source.length) {
      const c = source[at];
      if (c === '"' || c === "'") { at = stringEnd(source, at); operand = false; continue; }
      if (c === '`') { at = templateEnd(source, at, []); operand = false; continue; }
      if (c === '/' && source[at + 1] === '/') { at = lineEnd(source, at); continue; }
      if (c === '/' && source[at + 1] === '*') { at = source.indexOf('*/', at + 2) + 2; if (at < 2) break; continue; }
      if (c === '/' && operand) { at = regexEnd(source, at); operand = false; continue; }
      if (c === '{') depth++;
      if (c === '}') { if (depth === 0) return at; depth--; }
      if (!/\s/.test(c)) operand = !/[\w$)\]}]/.test(c);
      at++;
    }
    throw new SyntaxError('unterminated template');
  }

  function regexEnd(source, at) {
    let set = false;
    for (at++; at < source.length; at++) {
      const c = source[at];
      if (c === '\n') break;
      if (c === '\\') at++;
      else if (c === '[') set = true;
      else if (c === ']') set = false;
      else if (c === '/' && !set) {
        at++;
        while (at < source.length && /[a-zA-Z]/.test(source[at])) at++;
        return at;
      }
    }
    throw new SyntaxError('unterminated regular expression');
  }

  function regexMayFollow(t) {
    if (!t) return true;
    if (t.kind === 'word') return PREFIX.has(t.text);
    if (t.kind !== 'punctuation') return false;
    if (t.text === ')') return t.open.head;
    if (t.text === '}') return t.open.block;
    return t.text !== ']' && t.text !== '++' && t.text !== '--';
  }

  // blockMayFollow tells the brace of a block from that of an object.
  function blockMayFollow(t) {
    if (!t) return true;
    if (t.kind === 'word') return !PREFIX.has(t.text) || t.text === 'do' || t.text === 'else';
    if (t.kind !== 'punctuation') return true;
    return [')', ';', '{', '}', '=>'].includes(t.text);
  }

  // parse returns the statements at the top of a cell: where each begins and
  // ends, of what kind it is, and which names it declares.
  function parse(list) {
    const statements = [];
    const vars = [];
    let at = 0;
    const is = (i, text) => i < list.length && list[i].text === text && list[i].kind !== 'string' && list[i].kind !== 'template';
    const word = (i) => i < list.length && list[i].kind === 'word';
    const after = (i) => (list[i] && list[i].close !== undefined ? list[i].close + 1 : i + 1);
    const lost = (i) => { throw new SyntaxError('unexpected ' + (list[i] ? list[i].text : 'end')); };

    // pattern collects the names that a binding binds, and returns what follows.
    function pattern(i, names) {
      if (word(i)) { names.push(list[i].text); return i + 1; }
      if (!is(i, '{') && !is(i, '[')) lost(i);
      const object = is(i, '{');
      const end = list[i].close;
      let j = i + 1;
      while (j < end) {
        if (is(j, ',')) { j++; continue; }
        if (is(j, '...')) { j = pattern(j + 1, names); continue; }
        if (object) {
          const key = j;
          j = is(j, '[') ? after(j) : j + 1;
          j = is(j, ':') ? pattern(j + 1, names) : (names.push(list[key].text), j);
        } else {
          j = pattern(j, names);
        }
        if (is(j, '=')) while (j < end && !is(j, ',')) j = after(j);
      }
      return end + 1;
    }

    // expression skips to the end of an expression, or to a comma if it is one
    // of several.
    function expression(i, comma) {
      for (; i < list.length; i = after(i)) {
        if (is(i, ';') || (comma && is(i, ','))) return i;
        if (list[i].newline && i > 0 && endsOperand(list[i - 1]) && !continues(list[i])) {
          if (i > startOf) return i;
        }
      }
      return i;
    }
    let startOf = 0;

    function declarators(i, names) {
      for (;;) {
        i = pattern(i, names);
        if (is(i, '=')) { startOf = i + 1; i = expression(i + 1, true); }
        if (!is(i, ',')) return is(i, ';') ? i + 1 : i;
        i++;
      }
    }

    function body(i) {
      while (i < list.length && !is(i, '{')) i = after(i);
      return after(i);
    }

    // statement skips one, and reports its kind and what it declares.
    function statement(i, found) {
      startOf = i;
      const t = list[i];
      const text = t.kind === 'word' || t.kind === 'punctuation' ? t.text : '';
      found.kind = 'other';
      if (text === ';') { found.kind = 'empty'; return i + 1; }
      if (text === '{') return after(i);
      if (text === 'const' || text === 'var' || (text === 'let' && (word(i + 1) || is(i + 1, '{') || is(i + 1, '[')))) {
        found.kind = text;
        return declarators(i + 1, found.names);
      }
      if (text === 'class' && word(i + 1)) {
        found.kind = 'class';
        found.names.push(list[i + 1].text);
        return body(i + 2);
      }
      const asynchronous = text === 'async' && is(i + 1, 'function') && !list[i + 1].newline;
      if (text === 'function' || asynchronous) {
        let j = i + (asynchronous ? 2 : 1);
        const star = is(j, '*');
        if (star) j++;
        if (!word(j)) return lost(j);
        found.kind = asynchronous || star ? 'special function' : 'function';
        found.names.push(list[j].text);
        return body(after(j + 1));
      }
      if (text === 'import' && !is(i + 1, '(') && !is(i + 1, '.')) {
        found.kind = 'import';
        let j = i + 1;
        while (j < list.length && list[j].kind !== 'string') j = after(j);
        j++;
        if ((is(j, 'with') || (is(j, 'assert') && !list[j].newline)) && is(j + 1, '{')) j = after(j + 1);
        return is(j, ';') ? j + 1 : Math.min(j, list.length);
      }
      if (text === 'export' && !is(i + 1, 'default') && !is(i + 1, '{') && !is(i + 1, '*')) {
        found.exported = true;
        return statement(i + 1, found);
      }
      const inner = () => ({ names: [] });
      const nested = (j) => {
        const f = inner();
        const end = statement(j, f);
        if (f.kind === 'var') vars.push(...f.names);
        return end;
      };
      if (text === 'if') {
        let j = nested(after(i + 1));
        if (is(j, 'else')) j = nested(j + 1);
        return j;
      }
      if (text === 'for' || text === 'while' || text === 'with') {
        let j = i + 1;
        if (is(j, 'await')) j++;
        if (text === 'for' && is(j + 1, 'var')) {
          for (let k = j + 2; ; k++) {
            k = pattern(k, vars);
            if (is(k, '=')) { startOf = k + 1; k = expression(k + 1, true); }
            if (!is(k, ',')) break;
          }
        }
        return nested(after(j));
      }
      if (text === 'do') {
        let j = nested(i + 1);
        if (!is(j, 'while')) return lost(j);
        j = after(j + 1);
        return is(j, ';') ? j + 1 : j;
      }
      if (text === 'switch') return after(after(i + 1));
      if (text === 'try') {
        let j = after(i + 1);
        if (is(j, 'catch')) j = is(j + 1, '(') ? after(after(j + 1)) : after(j + 1);
        if (is(j, 'finally')) j = after(j + 1);
        return j;
      }
      if (t.kind === 'word' && is(i + 1, ':') && text !== 'case' && text !== 'default') return nested(i + 2);
      if (!['return', 'throw', 'break', 'continue', 'debugger', 'export'].includes(text)) found.kind = 'expression';
      const j = expression(i, false);
      found.stop = j;
      return is(j, ';') ? j + 1 : j;
    }

    while (at < list.length) {
      const found = { names: [], first: at };
      at = statement(at, found);
      found.last = at - 1;
      if (found.kind !== 'empty') statements.push(found);
    }
    return { statements, vars };
  }

  function endsOperand(t) {
    if (t.kind === 'word') return !PREFIX.has(t.text);
    if (t.kind === 'punctuation') return [')', ']', '}', '++', '--'].includes(t.text);
    return true;
  }

  function continues(t) {
    if (t.kind === 'word') return t.text === 'in' || t.text === 'instanceof';
    if (t.kind === 'template') return true;
    if (t.kind !== 'punctuation') return false;
    return !['{', '++', '--', '!', '~', '@'].includes(t.text);
  }

  // importOf returns the statement that a static import becomes, and its names.
  function importOf(list, s, source, load) {
    const part = list.slice(s.first + 1, s.last + 1).filter((t) => t.text !== ';');
    const from = part.findIndex((t, i) => t.kind === 'word' && t.text === 'from' && part[i + 1] && part[i + 1].kind === 'string');
    const name = part[from + 1];
    if (!name || name.kind !== 'string') throw new SyntaxError('import without a module');
    const rest = part.slice(from + 2);
    const open = rest.find((t) => t.text === '{');
    const attributes = open ? ', { with: ' + source.slice(open.start, rest[rest.length - 1].end) + ' }' : '';
    const call = 'await ' + load + '(' + name.text + attributes + ')';
    if (from < 0) return { code: call + ';', names: [] };
    const names = [];
    const members = [];
    let all = '';
    let i = 0;
    while (i < from) {
      const t = part[i];
      if (t.text === ',') { i++; continue; }
      if (t.text === '*') { all = part[i + 2].text; i += 3; continue; }
      if (t.text === '{') {
        for (i++; part[i].text !== '}'; i++) {
          if (part[i].text === ',') continue;
          const renamed = part[i + 1].text === 'as';
          const local = renamed ? part[i + 2].text : part[i].text;
          members.push(part[i].text + ': ' + local);
          names.push(local);
          if (renamed) i += 2;
        }
        i++;
        continue;
      }
      members.push('default: ' + t.text);
      names.push(t.text);
      i++;
    }
    if (all) names.push(all);
    const picked = members.length ? '{ ' + members.join(', ') + ' } = ' : '';
    if (!all) return { code: 'const ' + (picked || '{} = ') + call + ';', names };
    return { code: 'const ' + all + ' = ' + call + (members.length ? ', ' + picked + all : '') + ';', names };
  }

  // transform returns how a cell is run: its script, how many characters were
  // put before its first line, whether it gives a promise, whether its value is
  // to be shown, and the names that become plain properties of the global
  // object (globals), or accessors. Load, if not empty, takes the place of
  // import in calls of it.
  function transform(source, helper, load) {
    const list = tokens(source);
    const { statements, vars } = parse(list);
    const lexical = [];
    const plain = vars.slice();
    const edits = [];
    let waits = list.some((t) => t.awaits || (t.kind === 'word' && t.text === 'await'));
    for (const s of statements) {
      if (s.kind === 'import') {
        const made = importOf(list, s, source, load || 'import');
        const old = source.slice(list[s.first].start, list[s.last].end);
        edits.push([list[s.first].start, list[s.last].end, made.code + '\n'.repeat(old.split('\n').length - 1)]);
        lexical.push(...made.names);
        waits = true;
      } else if (s.kind === 'var' || s.kind === 'function') {
        plain.push(...s.names);
      } else {
        lexical.push(...s.names);
      }
      if (s.exported) edits.push([list[s.first].start, list[s.first].end, '']);
    }
    if (load) {
      list.forEach((t, i) => {
        if (t.kind === 'word' && t.text === 'import' && list[i + 1] && list[i + 1].text === '(' && !(i && list[i - 1].text === '.')) {
          edits.push([t.start, t.end, load]);
        }
      });
    }
    const last = statements[statements.length - 1];
    const shows = Boolean(last) && last.kind === 'expression';
    if (waits && shows) {
      // Behind the expression may be a comment: the parenthesis closes before.
      const end = list[last.stop - 1].end;
      edits.push([list[last.first].start, list[last.first].start, 'return (']);
      edits.push([end, end, ')']);
    }
    let text = source;
    for (const [start, end, by] of edits.sort((a, b) => b[0] - a[0] || b[1] - a[1])) {
      text = text.slice(0, start) + by + text.slice(end);
    }
    const accessors = waits ? lexical.concat(plain) : lexical;
    const unique = [...new Set(accessors)];
    const define = unique.length
      ? helper + '({' + unique.map((n) => `${JSON.stringify(n)}:[()=>${n},($)=>{${n}=$}]`).join(',') + '});'
      : '';
    const prefix = waits ? '(async()=>{' + define : '{' + define;
    return {
      code: prefix + (source.startsWith('#!') ? '//' : '') + text + (waits ? '\n})()' : '\n}'),
      offset: prefix.length,
      waits,
      shows,
      globals: waits ? [] : [...new Set(plain)],
    };
  }

  const MAX_ALIGNED = 4 << 20; // pairs of tokens

  // align returns for each line of made, which a compiler made of source, the
  // line there that it came from (from 1), as the longest sequence of tokens
  // tells that both have. It is empty where that cannot be told.
  function align(source, made) {
    let from, to;
    try { [from, to] = [tokens(source), tokens(made)]; } catch { return []; }
    const text = (t) => (t.kind === 'string' ? t.text.slice(1, -1) : t.text);
    const [a, b] = [from.map(text), to.map(text)];
    if (a.length * b.length > MAX_ALIGNED) return [];
    // best[i * width + j] is how many tokens a from i and b from j share.
    const width = b.length + 1;
    const best = new Uint16Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i--) {
      for (let j = b.length - 1; j >= 0; j--) {
        const at = i * width + j;
        best[at] = a[i] === b[j] ? best[at + width + 1] + 1 : Math.max(best[at + width], best[at + 1]);
      }
    }
    const [lineOf, lineIn] = [lineCounter(source), lineCounter(made)];
    const lines = [];
    for (let i = 0, j = 0; i < a.length && j < b.length;) {
      const at = i * width + j;
      if (a[i] === b[j] && best[at] === best[at + width + 1] + 1) {
        lines[lineIn(to[j].start)] ??= lineOf(from[i].start) + 1;
        i++;
        j++;
      } else if (best[at + width] >= best[at + 1]) i++;
      else j++;
    }
    for (let i = 1; i < lines.length; i++) lines[i] ??= lines[i - 1];
    return lines;
  }

  // lineCounter returns a function that tells the line (from 0) of ever later
  // positions.
  function lineCounter(source) {
    let line = 0;
    let at = 0;
    return (position) => {
      for (; at < position; at++) if (source[at] === '\n') line++;
      return line;
    };
  }

  return { tokens, parse, transform, align };
})()
