// Drives Chromium through sign-ins to the dashboard at an issuer.
import { createServer } from 'node:net';
import { check, done, open, serve, step } from './common.mjs';
import { startIssuer } from './issuer.mjs';

const evil = '<script>alert(1)</script>';
const issuer = await startIssuer({ ada: 'run files', grace: 'run', guest: 'openid' });

// The issuer sends people to the address in the configuration, which the server needs at
// its start. A port may be taken between its choice and its use.
async function start() {
  for (let attempt = 1; ; attempt++) {
    const port = await new Promise((resolve) => {
      const probe = createServer().listen(0, '127.0.0.1', () => {
        const { port } = probe.address();
        probe.close(() => resolve(port));
      });
    });
    const config = `server:\n  public_url: http://127.0.0.1:${port}\n  oidc:\n    issuer: ${issuer.url}\n    audience: box\n    client:\n      id: pages\n`;
    try {
      return await serve(`127.0.0.1:${port}`, { config, variables: { GLOVEBOX_OIDC_CLIENT_SECRET: 'of the client' } });
    } catch (e) {
      if (attempt === 5 || !/address already in use/.test(e.message)) throw e;
    }
  }
}
const server = await start();
const base = server.url;

// enter goes from the sign-in page to the issuer, which is another site, and says a name.
async function enter(page, who) {
  await page.getByRole('link', { name: /^Sign in with/ }).click();
  await page.getByRole('heading', { name: 'Who are you?' }).waitFor();
  await page.getByLabel('Name').fill(who);
  await page.getByRole('button', { name: 'Sign in' }).click();
}
const signedInAs = (page, who) => page.locator(`.who .name[title$="#${who}"]`).waitFor({ state: 'attached' });

for (const [colorScheme, width] of [['light', 1280], ['dark', 380]]) {
  await step(`a sign-in leads to the page that was wanted, ${colorScheme}, ${width} pixels`, async () => {
    const page = await open({ colorScheme, viewport: { width, height: 800 } });
    await page.goto(base + '/ui/settings');
    await check(page, 'the sign-in page');
    await enter(page, 'ada');
    await page.waitForURL(base + '/ui/settings');
    await signedInAs(page, 'ada');
    await check(page, 'settings of a person');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await page.goto(base + '/ui/settings');
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
    await page.context().close();
  });
  await step(`a refusal is readable, ${colorScheme}, ${width} pixels`, async () => {
    const page = await open({ colorScheme, viewport: { width, height: 800 } });
    await page.goto(base + '/');
    await enter(page, evil);
    await page.getByRole('alert').getByText(`The issuer refused the sign-in: ${evil} is not known here.`).waitFor();
    await check(page, 'a refusal of the issuer');
    await enter(page, 'guest');
    await page.getByRole('alert').getByText('none of the scopes').waitFor();
    await check(page, 'a refusal of the server');
    await enter(page, 'ada');
    await page.getByRole('heading', { name: 'Now' }).waitFor();
    await page.context().close();
  });
}
await step('another person takes a browser over from another site', async () => {
  const page = await open();
  await page.goto(base + '/');
  await enter(page, 'ada');
  await page.getByRole('heading', { name: 'Now' }).waitFor();
  const [old] = (await page.context().cookies()).filter((c) => c.name === 'glovebox_session');
  // A page of the issuer, which is another site, links to the sign-in.
  await page.goto(issuer.url + '/authorize');
  await page.evaluate((to) => { location.href = to; }, base + '/ui/issuer?next=/ui/usage');
  await page.getByLabel('Name').fill('grace');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL(base + '/ui/usage');
  await signedInAs(page, 'grace');
  const thief = await open();
  await thief.context().addCookies([old]);
  await thief.goto(base + '/');
  await thief.getByRole('heading', { name: 'Sign in' }).waitFor();
  await thief.context().close();
  await page.context().close();
});
await server.end();
await issuer.end();
await done();
