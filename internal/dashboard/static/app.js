// Makes pages of the dashboard live: local times, and newer content from the server.
// All pages are complete without it.

const absolute = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
const clock = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', second: '2-digit' });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: 'always', style: 'narrow' });
const century = 50 * 365 * 86400;

function since(seconds) {
  const size = Math.abs(seconds);
  if (size > century) return 'never';
  if (size < 10) return seconds > 0 ? 'soon' : 'just now';
  if (size < 60) return relative.format(Math.trunc(seconds / 10) * 10, 'second');
  if (size < 3600) return relative.format(Math.trunc(seconds / 60), 'minute');
  if (size < 86400) return relative.format(Math.trunc(seconds / 3600), 'hour');
  return relative.format(Math.trunc(seconds / 86400), 'day');
}

// localise writes the times of an element for the reader.
function localise(root) {
  for (const e of root.querySelectorAll('time[data-show]')) {
    const date = new Date(e.dateTime);
    const text = e.dataset.show === 'ago' ? since((date - Date.now()) / 1000) : clock.format(date);
    if (e.textContent !== text) e.textContent = text;
    if (!e.title) e.title = absolute.format(date);
  }
}

// morph makes the children of one node equal to those of another, and keeps the nodes
// that did not change, so that selection, focus and scroll positions stay.
function morph(from, to) {
  const keyed = new Map();
  for (const e of from.children) if (e.dataset.key) keyed.set(e.dataset.key, e);
  let at = from.firstChild;
  for (const want of [...to.childNodes]) {
    const key = want.nodeType === Node.ELEMENT_NODE && want.dataset.key;
    let have = key ? keyed.get(key) : at;
    if (key && have && have !== at) from.insertBefore(have, at);
    if (!have || have.nodeType !== want.nodeType || have.nodeName !== want.nodeName || (!key && have.dataset?.key)) {
      from.insertBefore(want, at);
      continue;
    }
    at = have.nextSibling;
    if (have.isEqualNode(want)) continue;
    if (want.nodeType !== Node.ELEMENT_NODE) {
      have.nodeValue = want.nodeValue;
      continue;
    }
    for (const a of [...have.attributes]) if (!want.hasAttribute(a.name) && a.name !== 'open') have.removeAttribute(a.name);
    for (const a of want.attributes) if (have.getAttribute(a.name) !== a.value) have.setAttribute(a.name, a.value);
    // What was drawn here is newer than the page.
    if (have.dataset.chart || have.matches('.data')) continue;
    const atEnd = have.scrollHeight - have.scrollTop - have.clientHeight < 4;
    morph(have, want);
    if (atEnd && have.matches('pre.output')) have.scrollTop = have.scrollHeight;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const status = document.getElementById('link');

function say(text, href) {
  if (!status || status.dataset.text === text) return;
  status.dataset.text = text;
  status.replaceChildren(text);
  if (href) {
    const a = document.createElement('a');
    a.href = href;
    a.textContent = 'Sign in';
    status.append(' ', a);
  }
}

// follow keeps a part of the page up to date while the page is visible. It connects
// again after the server was away.
function follow(part) {
  let source, retry, wait = 1000, done = false;
  const close = () => {
    source?.close();
    clearTimeout(retry);
    source = retry = undefined;
  };
  const again = async () => {
    close();
    say('Reconnecting …');
    retry = setTimeout(open, wait);
    wait = Math.min(wait * 2, 15000);
  };
  const failed = async () => {
    close();
    try {
      const res = await fetch(part.dataset.live, { headers: { Accept: 'text/event-stream' }, signal: AbortSignal.timeout(5000) });
      res.body?.cancel();
      if (res.status === 401) return say('You are signed out.', '/ui/signin?next=' + encodeURIComponent(location.pathname));
      if (res.status === 404) return say('This is gone.');
    } catch { /* the server is away */ }
    again();
  };
  const open = () => {
    if (done || source || document.hidden) return;
    source = new EventSource(part.dataset.live);
    source.onerror = failed;
    source.onopen = () => {
      wait = 1000;
      say('Live');
    };
    source.addEventListener('page', (e) => {
      const next = new DOMParser().parseFromString('<div>' + e.data + '</div>', 'text/html').body.firstChild;
      localise(next);
      morph(part, next);
      enhance(part);
    });
    for (const end of ['over', 'gone']) {
      source.addEventListener(end, () => {
        done = true;
        close();
        say(end === 'gone' ? 'This is gone.' : '');
        for (const e of document.querySelectorAll('.confirm, [data-when]')) e.hidden = true;
      });
    }
  };
  document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));
  addEventListener('pagehide', close);
  open();
}

// enhance draws charts and makes tables sortable.
async function enhance(root) {
  const charts = [...root.querySelectorAll('[data-chart]')].filter((e) => !e.firstChild);
  if (charts.length > 0) {
    const { draw } = await import('./chart.js');
    for (const e of charts) {
      let figure;
      try { figure = draw(JSON.parse(e.dataset.chart)); } catch { /* it is no chart */ }
      if (!figure || e.firstChild) continue;
      e.append(figure);
    }
  }
  const tables = root.querySelectorAll('.data table');
  if (tables.length > 0) {
    const { sortable } = await import('./table.js');
    tables.forEach(sortable);
  }
}

localise(document);
enhance(document);
setInterval(() => document.hidden || localise(document), 5000);
for (const part of document.querySelectorAll('[data-live]')) if (part.dataset.live) follow(part);

// Escape closes the form that has the focus.
document.addEventListener('keydown', (e) => {
  const form = e.key === 'Escape' && e.target.closest?.('details[open]');
  if (!form) return;
  form.open = false;
  form.querySelector('summary').focus();
});

// Snippets get a button that copies them.
for (const pre of document.querySelectorAll('pre.snippet')) {
  if (!navigator.clipboard) break;
  const button = document.createElement('button');
  button.type = 'button';
  button.className = 'copy';
  button.textContent = 'Copy';
  button.addEventListener('click', async () => {
    await navigator.clipboard.writeText(pre.querySelector('code').textContent);
    button.textContent = 'Copied';
    setTimeout(() => (button.textContent = 'Copy'), 2000);
  });
  pre.append(button);
}
