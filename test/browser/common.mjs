// What the scripts with a browser share. The variables GLOVEBOX, CHROMIUM and STATE name the
// program, the browser and the state directory. With GLOVEBOX_SCREENSHOTS, a picture of each
// page that is checked is written to that directory.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const require = createRequire(new URL('npm/package.json', import.meta.url));
const { chromium } = require('playwright-core');
const { AxeBuilder } = require('@axe-core/playwright');

const { GLOVEBOX, CHROMIUM, STATE } = process.env;
const env = { ...process.env, GLOVEBOX_STATE_DIR: STATE, GLOVEBOX_DRIVER: 'gvisor', NO_COLOR: '1' };

// cli runs a command, and returns its output.
export const cli = (...args) => execFileSync(GLOVEBOX, args, { env, stdio: ['ignore', 'pipe', 'ignore'] }).toString().trim();

// Nothing of a failed test remains.
let running;
process.on('exit', () => {
  if (!running) return;
  try { cli('stop', '--all'); } finally { running.kill('SIGTERM'); }
});

// serve starts a server, and returns its URL and a function that ends it. Without a text
// for the configuration, the one of the last server remains.
export async function serve(listen, { config, flags = [], variables = {} } = {}) {
  if (config !== undefined) writeFileSync(STATE + '.yaml', config);
  const child = spawn(GLOVEBOX, ['serve', '--config', STATE + '.yaml', '--listen', listen, ...flags], { env: { ...env, ...variables }, stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  const url = await new Promise((resolve, reject) => {
    createInterface({ input: child.stderr }).on('line', (line) => {
      said += line + '\n';
      const at = /http:\/\/127\.0\.0\.1:\d+(?=\/mcp)/.exec(line);
      if (at) resolve(at[0]);
    });
    child.on('exit', () => reject(new Error('the server ended: ' + said)));
  });
  running = child;
  const end = () => new Promise((resolve) => {
    running = undefined;
    child.removeAllListeners('exit').on('exit', resolve);
    child.kill('SIGTERM');
  });
  return { url, end };
}

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
const faults = [];

// open opens a page in a context of its own. Errors in pages, dialogs, and what the policy
// of a page refuses are faults.
export async function open(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(30000);
  page.on('pageerror', (e) => faults.push(`${page.url()}: ${e.message}`));
  page.on('dialog', (d) => { faults.push(`${page.url()}: a dialog`); d.dismiss(); });
  page.on('console', (m) => /Content Security Policy|Refused/.test(m.text()) && faults.push(`${page.url()}: ${m.text()}`));
  return page;
}

export async function step(name, f) {
  const began = Date.now();
  await f();
  console.log(`ok ${name} (${Date.now() - began} ms)`);
}

async function picture(page, what) {
  const dir = process.env.GLOVEBOX_SCREENSHOTS;
  if (!dir) return;
  mkdirSync(dir, { recursive: true });
  const scheme = await page.evaluate(() => (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
  const name = [what, scheme, page.viewportSize().width].join('-').replace(/[^a-z0-9]+/gi, '-').replace(/^-/, '').toLowerCase();
  await page.screenshot({ path: join(dir, `${name}.png`), scale: 'css' });
}

// check has axe find faults of accessibility, and checks that a page fits its window.
export async function check(page, what) {
  await picture(page, what);
  const { violations } = await new AxeBuilder({ page }).analyze();
  assert.deepEqual(violations.map((v) => `${what}: ${v.id}: ${v.nodes[0].html}`), []);
  assert((await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)) <= 0, `${what} is too wide`);
}

// rolesOf counts what the browser tells screen readers about tables, and what it should.
export async function rolesOf(page) {
  const cdp = await page.context().newCDPSession(page);
  const { nodes } = await cdp.send('Accessibility.getFullAXTree');
  await cdp.detach();
  const said = (role) => nodes.filter((n) => !n.ignored && n.role?.value === role).length;
  const elements = { table: 'table', row: 'tr', columnheader: 'th[scope=col]', rowheader: 'th[scope=row]', cell: 'td' };
  const meant = await page.evaluate((of) => Object.fromEntries(Object.entries(of).map(([role, selector]) =>
    [role, [...document.querySelectorAll(selector)].filter((e) => getComputedStyle(e).display !== 'none').length])), elements);
  return { said: Object.fromEntries(Object.keys(elements).map((role) => [role, said(role)])), meant };
}

// done ends a script without faults.
export async function done() {
  await browser.close();
  assert.deepEqual(faults, []);
  console.log('done');
}
