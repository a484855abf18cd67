// Draws charts from the data of a result, in E2B's form. All text is set as text.
const NS = 'http://www.w3.org/2000/svg';
// On a narrow window, the drawing is narrow, so that its text keeps its size.
const narrow = innerWidth < 480;
const W = narrow ? 340 : 640, H = 320, L = 56, R = 16, T = 16, B = 44;

function node(name, attributes, ...children) {
  const e = document.createElementNS(NS, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  e.append(...children);
  return e;
}
const round = (n) => Math.round(n * 100) / 100;
const label = (v) => (typeof v === 'number' ? String(+v.toPrecision(4)) : String(v).slice(0, 24));

// ticks returns about five round numbers from low to high.
function ticks(low, high) {
  const raw = (high - low) / 5 || 1, size = 10 ** Math.floor(Math.log10(raw));
  const step = size * ([1, 2, 5, 10].find((m) => m * size >= raw) ?? 10);
  const list = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step / 1e6 && list.length < 20; v += step) list.push(+v.toPrecision(12));
  return list;
}

function extent(values, zero) {
  let low = Infinity, high = -Infinity;
  for (const v of values) if (Number.isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); }
  if (low > high) return [0, 1];
  if (zero) { low = Math.min(low, 0); high = Math.max(high, 0); }
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

// axes draws a frame with the scales of both directions, and returns functions for them.
function axes(svg, chart, xs, ys, zero) {
  const numeric = xs.every((x) => typeof x === 'number');
  const names = numeric ? [] : [...new Set(xs.map(String))];
  const [x0, x1] = numeric ? extent(xs) : [-0.5, names.length - 0.5];
  const [y0, y1] = extent(ys, zero);
  const sx = (v) => round(L + ((numeric ? v : names.indexOf(String(v))) - x0) / (x1 - x0) * (W - L - R));
  const sy = (v) => round(H - B - (v - y0) / (y1 - y0) * (H - T - B));
  for (const y of ticks(y0, y1)) {
    svg.append(node('line', { class: 'grid', x1: L, x2: W - R, y1: sy(y), y2: sy(y) }), node('text', { x: L - 8, y: sy(y) + 4, 'text-anchor': 'end' }, label(y)));
  }
  const every = Math.ceil(names.length / (narrow ? 6 : 12));
  for (const x of numeric ? ticks(x0, x1) : names.filter((_, i) => i % every === 0)) {
    svg.append(node('text', { x: sx(x), y: H - B + 18, 'text-anchor': 'middle' }, label(x)));
  }
  if (chart.x_label) svg.append(node('text', { class: 'name', x: (L + W - R) / 2, y: H - 6, 'text-anchor': 'middle' }, label(chart.x_label)));
  if (chart.y_label) svg.append(node('text', { class: 'name', x: 12, y: (T + H - B) / 2, 'text-anchor': 'middle', transform: `rotate(-90 12 ${(T + H - B) / 2})` }, label(chart.y_label)));
  return { sx, sy, base: sy(Math.min(Math.max(0, y0), y1)), names };
}

function points(e) {
  return (Array.isArray(e?.points) ? e.points : []).filter((p) => Array.isArray(p) && p.length >= 2 && typeof p[1] === 'number').slice(0, 5000);
}

const series = (i) => `series s${i % 6}`;
const tip = (text) => node('title', {}, text);

const kinds = {
  line(svg, chart, list) {
    const all = list.flatMap(points);
    const { sx, sy } = axes(svg, chart, all.map((p) => p[0]), all.map((p) => p[1]));
    list.forEach((e, i) => svg.append(node('polyline', { class: series(i), points: points(e).map((p) => `${sx(p[0])},${sy(p[1])}`).join(' ') }, tip(label(e.label ?? '')))));
  },
  scatter(svg, chart, list) {
    const all = list.flatMap(points);
    const { sx, sy } = axes(svg, chart, all.map((p) => p[0]), all.map((p) => p[1]));
    list.forEach((e, i) => points(e).forEach((p) => svg.append(node('circle', { class: series(i), cx: sx(p[0]), cy: sy(p[1]), r: 3.5 }, tip(`${label(p[0])}, ${label(p[1])}`)))));
  },
  bar(svg, chart, list) {
    const bars = list.filter((e) => Number.isFinite(+e?.value)).slice(0, 500);
    const groups = [...new Set(bars.map((e) => String(e.group ?? '')))];
    const { sx, sy, base, names } = axes(svg, chart, bars.map((e) => String(e.label)), bars.map((e) => +e.value), true);
    const width = Math.max(1, (W - L - R) / names.length * 0.8 / groups.length);
    for (const e of bars) {
      const g = groups.indexOf(String(e.group ?? '')), y = sy(+e.value);
      svg.append(node('rect', { class: series(g), x: round(sx(String(e.label)) + (g - groups.length / 2) * width), y: Math.min(y, base), width: round(width), height: Math.max(1, Math.abs(base - y)) }, tip(`${label(e.label)}: ${label(+e.value)}`)));
    }
    return groups;
  },
  pie(svg, chart, list) {
    const parts = list.filter((e) => +e?.angle > 0).slice(0, 50);
    const sum = parts.reduce((n, e) => n + +e.angle, 0) || 1;
    let at = 0;
    parts.forEach((e, i) => {
      const from = at / sum * 2 * Math.PI, to = (at += +e.angle) / sum * 2 * Math.PI, on = (a) => `${round(W / 2 + 120 * Math.sin(a))} ${round(H / 2 - 120 * Math.cos(a))}`;
      const d = parts.length === 1 ? `M ${on(0)} A 120 120 0 1 1 ${on(Math.PI)} A 120 120 0 1 1 ${on(2 * Math.PI)} Z` : `M ${W / 2} ${H / 2} L ${on(from)} A 120 120 0 ${to - from > Math.PI ? 1 : 0} 1 ${on(to)} Z`;
      svg.append(node('path', { class: series(i), d }, tip(`${label(e.label)}: ${label(+e.angle / sum * 100)} %`)));
    });
    return parts.map((e) => label(e.label));
  },
  box_and_whisker(svg, chart, list) {
    const keys = ['min', 'first_quartile', 'median', 'third_quartile', 'max'];
    const boxes = list.filter((e) => keys.every((k) => Number.isFinite(+e?.[k]))).slice(0, 50);
    const outliers = (e) => (Array.isArray(e.outliers) ? e.outliers.filter(Number.isFinite).slice(0, 200) : []);
    const { sx, sy, names } = axes(svg, chart, boxes.map((e) => String(e.label)), boxes.flatMap((e) => [...keys.map((k) => +e[k]), ...outliers(e)]));
    const half = Math.min(40, (W - L - R) / names.length * 0.3);
    for (const e of boxes) {
      const x = sx(String(e.label)), [low, q1, mid, q3, high] = keys.map((k) => sy(+e[k]));
      svg.append(node('line', { class: 'whisker', x1: x, x2: x, y1: low, y2: high }), node('rect', { class: 'series s0', x: x - half, y: q3, width: 2 * half, height: Math.max(1, q1 - q3) }, tip(keys.map((k) => `${k.replace('_', ' ')}: ${label(+e[k])}`).join('\n'))), node('line', { class: 'median', x1: x - half, x2: x + half, y1: mid, y2: mid }));
      for (const o of outliers(e)) svg.append(node('circle', { class: 'series s1', cx: x, cy: sy(o), r: 3 }, tip(label(o))));
    }
  },
};

// draw returns the figure of a chart, or undefined if its type is not known.
export function draw(chart) {
  if (chart?.type === 'superchart') {
    const parts = (Array.isArray(chart.elements) ? chart.elements : []).slice(0, 12).map(draw).filter(Boolean);
    if (parts.length === 0) return;
    const all = document.createElement('div');
    all.append(...parts);
    return all;
  }
  const kind = Object.hasOwn(kinds, chart?.type) && kinds[chart.type];
  const list = (Array.isArray(chart?.elements) ? chart.elements : []).filter((e) => e && typeof e === 'object').slice(0, 50000);
  if (!kind || list.length === 0) return;
  const title = String(chart.title || `${chart.type} chart`).slice(0, 120);
  const svg = node('svg', { class: 'plot', viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': title });
  const legend = kind(svg, chart, list) ?? list.map((e) => label(e.label ?? ''));
  const figure = document.createElement('figure');
  figure.className = 'card chart';
  const caption = document.createElement('figcaption');
  caption.textContent = title;
  figure.append(caption, svg);
  const names = legend.filter(Boolean).slice(0, 12);
  if (names.length > 1) {
    const ul = document.createElement('ul');
    ul.className = 'legend';
    names.forEach((name, i) => {
      const li = document.createElement('li');
      const key = node('svg', { viewBox: '0 0 10 10', width: 10, height: 10, 'aria-hidden': 'true' }, node('rect', { class: series(i), width: 10, height: 10, rx: 2 }));
      li.append(key, ' ' + name);
      ul.append(li);
    });
    figure.append(ul);
  }
  return figure;
}
