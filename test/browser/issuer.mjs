// An issuer of OpenID Connect on a loopback address, with a page on which people choose who
// they are.
import { createHash, generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { createServer } from 'node:http';

const encode = (value) => Buffer.from(value).toString('base64url');

// startIssuer starts an issuer for the client "pages", whose secret is "of the client".
// people maps the names of people to their scopes. The issuer refuses all others.
export async function startIssuer(people) {
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const codes = new Map();
  let url;
  const token = (claims) => {
    const now = Math.floor(Date.now() / 1000);
    const head = encode(JSON.stringify({ alg: 'RS256', kid: 'one' }));
    const body = encode(JSON.stringify({ iss: url, iat: now, exp: now + 3600, ...claims }));
    return `${head}.${body}.${sign('sha256', `${head}.${body}`, privateKey).toString('base64url')}`;
  };
  const exchange = (form, authorization) => {
    const given = codes.get(form.get('code'));
    codes.delete(form.get('code'));
    const verifier = createHash('sha256').update(form.get('code_verifier') ?? '').digest('base64url');
    if (authorization !== 'Basic ' + Buffer.from('pages:of+the+client').toString('base64')) return { error: 'invalid_client' };
    if (!given || given.challenge !== verifier || given.redirect !== form.get('redirect_uri')) return { error: 'invalid_grant' };
    return {
      token_type: 'Bearer', expires_in: 3600,
      id_token: token({ sub: given.who, aud: 'pages', nonce: given.nonce }),
      access_token: token({ sub: given.who, aud: 'box', scope: people[given.who] }),
    };
  };
  const server = createServer(async (req, res) => {
    let body = '';
    for await (const part of req) body += part;
    const at = new URL(req.url, url);
    const json = (value) => {
      res.writeHead(value.error ? 400 : 200, { 'Content-Type': 'application/json' });
      res.end(JSON.stringify(value));
    };
    switch (at.pathname) {
      case '/.well-known/openid-configuration':
        return json({ issuer: url, jwks_uri: url + '/keys', authorization_endpoint: url + '/authorize', token_endpoint: url + '/token' });
      case '/keys':
        return json({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'one', use: 'sig' }] });
      case '/token':
        return json(exchange(new URLSearchParams(body), req.headers.authorization));
      case '/authorize':
        res.writeHead(200, { 'Content-Type': 'text/html' });
        return res.end(`<!doctype html><title>The issuer</title><h1>Who are you?</h1>
          <form method="post" action="/agree?${encode(at.search)}"><input name="who" aria-label="Name"><button>Sign in</button></form>`);
      case '/agree': {
        const asked = new URLSearchParams(Buffer.from(at.search.slice(1), 'base64url').toString());
        const who = new URLSearchParams(body).get('who');
        const to = new URL(asked.get('redirect_uri'));
        to.searchParams.set('state', asked.get('state'));
        if (who in people) {
          const code = randomUUID();
          codes.set(code, { who, challenge: asked.get('code_challenge'), nonce: asked.get('nonce'), redirect: asked.get('redirect_uri') });
          to.searchParams.set('code', code);
        } else {
          to.searchParams.set('error', 'access_denied');
          to.searchParams.set('error_description', `${who} is not known here.`);
        }
        res.writeHead(303, { Location: to.href });
        return res.end();
      }
      default:
        res.writeHead(404);
        return res.end();
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://localhost:${server.address().port}`; // of another site than 127.0.0.1
  return { url, end: () => new Promise((resolve) => { server.close(resolve); server.closeAllConnections(); }) };
}
