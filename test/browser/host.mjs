// A host of MCP Apps in a page of the browser, made of the reference implementation's
// AppBridge. No bundler is needed: the page has a map of the modules from npm.
import { readFile } from 'node:fs/promises';
import { extname } from 'node:path';

const origin = 'https://host.test';
const modules = new URL('npm/node_modules/', import.meta.url);
const types = { '.js': 'text/javascript', '.mjs': 'text/javascript' };
const imports = Object.fromEntries(Object.entries({
  '@modelcontextprotocol/ext-apps/app-bridge': '@modelcontextprotocol/ext-apps/dist/src/app-bridge.js',
  '@modelcontextprotocol/client': '@modelcontextprotocol/client/dist/index.mjs',
  '@modelcontextprotocol/client/_shims': '@modelcontextprotocol/client/dist/shimsBrowser.mjs',
  '@modelcontextprotocol/core': '@modelcontextprotocol/core/dist/index.mjs',
  '@modelcontextprotocol/core/internal': '@modelcontextprotocol/core/dist/internal.mjs',
  eventsource: 'eventsource/dist/index.js',
  'eventsource-parser': 'eventsource-parser/dist/index.js',
  'eventsource-parser/stream': 'eventsource-parser/dist/stream.js',
  'pkce-challenge': 'pkce-challenge/dist/index.browser.js',
  'zod/v4': 'zod/v4/index.js',
}).map(([name, path]) => [name, `${origin}/npm/${path}`]));

// The policy that the specification gives a view that asks for no hosts.
const policy = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; media-src 'self' data:; connect-src 'none'";

// show opens a view in a frame of a host page, and returns the page. The host sends the
// arguments and the result of a call, and gives the view's calls of tools to callTool.
// window.host in the page has what it heard, and the bridge.
export async function show(page, { html, tool, input, result, theme, callTool }) {
  await page.context().route(origin + '/**', async (route) => {
    const path = new URL(route.request().url()).pathname;
    if (path === '/') {
      return route.fulfill({ contentType: 'text/html', body: `<!doctype html><script type="importmap">${JSON.stringify({ imports })}</script><body style="margin:0"><iframe sandbox="allow-scripts" style="width:100%;height:10px;border:0"></iframe>` });
    }
    if (!path.startsWith('/npm/')) return route.fulfill({ status: 404 });
    const file = new URL(decodeURIComponent(path.slice('/npm/'.length)), modules);
    return route.fulfill({ contentType: types[extname(file.pathname)], body: await readFile(file) });
  });
  await page.exposeFunction('callTool', callTool);
  await page.goto(origin + '/');
  await page.evaluate(async ({ html, tool, input, result, theme }) => {
    const { AppBridge, PostMessageTransport, getToolUiResourceUri } = await import('@modelcontextprotocol/ext-apps/app-bridge');
    const frame = document.querySelector('iframe');
    const bridge = new AppBridge(null, { name: 'test', version: '1' }, { serverTools: {}, downloadFile: {} },
      { hostContext: { theme, toolInfo: { id: 1, tool }, displayMode: 'inline', containerDimensions: { maxHeight: 6000 } } });
    const host = window.host = { bridge, uri: getToolUiResourceUri(tool), files: [], sizes: [], errors: [] };
    bridge.onerror = (e) => host.errors.push(e.message);
    bridge.onsizechange = (size) => {
      host.sizes.push(size);
      frame.style.height = size.height + 'px';
    };
    bridge.ondownloadfile = async ({ contents }) => {
      host.files.push(...contents);
      return {};
    };
    bridge.oncalltool = (params) => window.callTool(params);
    bridge.oninitialized = async () => {
      host.view = bridge.getAppVersion();
      await bridge.sendToolInput({ arguments: input });
      await bridge.sendToolResult(result);
    };
    await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
    frame.srcdoc = html;
  }, { html: `<meta http-equiv="Content-Security-Policy" content="${policy}">${html}`, tool, input, result, theme });
}
