/**
 * A real OpenID provider (npm: oidc-provider) for the tests, on loopback. Whoever is sent there is logged in at once as
 * the account that the test chose: `POST /account` with its claims as JSON, `{"refuses": true}` for nobody.
 *
 * node oidc_provider.mjs REDIRECT_URI: prints its issuer as the first line.
 */
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const [redirectUri] = process.argv.slice(2);
/** @type {Record<string, Record<string, unknown>>} */
const accounts = {};
let now = /** @type {Record<string, unknown>} */ ({ sub: 'nobody' });

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [{ client_id: 'sprite', client_secret: 'a secret: with/signs', redirect_uris: [redirectUri] }],
    claims: {
      openid: ['sub'],
      profile: ['preferred_username', 'name', 'groups'],
      email: ['email', 'email_verified'],
    },
    features: { devInteractions: { enabled: false } },
    pkce: { required: () => true },
    interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_ctx, sub) => ({ accountId: sub, claims: () => ({ ...accounts[sub], sub }) }),
    loadExistingGrant: async (ctx) => {
      const { client, session } = ctx.oidc;
      const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope('openid profile email');
      await grant.save();
      return grant;
    },
  });
  const answer = provider.callback();
  server.on('request', async (request, response) => {
    if (request.method === 'POST' && request.url === '/account') {
      let body = '';
      for await (const piece of request) body += piece;
      now = JSON.parse(body);
      accounts[String(now.sub)] = now;
      response.end('{}');
    } else if (request.url?.startsWith('/interaction/')) {
      const result = now.refuses ? { error: 'access_denied' } : { login: { accountId: String(now.sub), remember: false } };
      await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
    } else {
      answer(request, response);
    }
  });
  process.stdout.write(`http://127.0.0.1:${port}\n`);
});
