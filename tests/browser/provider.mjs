// A real identity provider (panva's oidc-provider, certified) on loopback, whose people and groups the test says; and what a forger would make of its tokens.

import { createServer } from "node:http";
import { createRequire } from "node:module";
import Provider from "oidc-provider";

const require = createRequire(import.meta.url);
const { CompactSign, UnsecuredJWT, exportJWK, generateKeyPair, importJWK, decodeJwt } = await import(
  require.resolve("jose", { paths: [require.resolve("oidc-provider")] })
);

export const CLIENT = "headway";

async function freshKey(id) {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  return { ...(await exportJWK(privateKey)), kid: id, use: "sig", alg: "RS256" };
}

/** Listens on a port of its own; `people` is read at each login: name → groups. */
export async function startProvider(port, people) {
  const issuer = `http://127.0.0.1:${port}`;
  let key = await freshKey("first");
  let server;
  const state = { issuer, tamper: undefined };

  async function listen() {
    const provider = new Provider(issuer, {
      clients: [
        {
          client_id: CLIENT,
          token_endpoint_auth_method: "none",
          application_type: "native",
          grant_types: ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"],
          response_types: ["code"],
          // Of a native client on loopback any port is meant (RFC 8252, 7.3).
          redirect_uris: ["http://127.0.0.1/callback", "http://127.0.0.1/api/v1/auth/oidc/callback"],
        },
      ],
      jwks: { keys: [key] },
      cookies: { keys: ["of a test"] },
      claims: { openid: ["sub"], profile: ["preferred_username"], groups: ["groups"] },
      scopes: ["openid", "profile", "groups"],
      // Names and groups are said where the server asks for them (userinfo), as the standard has it; of the id token itself the unit tests tell.
      conformIdTokenClaims: true,
      features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true } },
      findAccount: (_, id) => ({
        accountId: id,
        claims: () => ({ sub: id, preferred_username: id, groups: people[id] ?? [] }),
      }),
    });
    provider.use(async (ctx, next) => {
      await next();
      if (ctx.path === "/token" && ctx.body?.id_token && state.tamper) {
        ctx.body.id_token = await state.tamper(ctx.body.id_token);
      }
    });
    const handler = provider.callback();
    server = createServer(handler);
    await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  }

  async function close() {
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  }

  /** Signs other claims with the provider's own key. */
  async function signed(token, change, header = {}) {
    const claims = { ...decodeJwt(token), ...change };
    const payload = new TextEncoder().encode(JSON.stringify(claims));
    const head = { alg: "RS256", kid: key.kid, ...header };
    return new CompactSign(payload).setProtectedHeader(head).sign(await importJWK(key, "RS256"));
  }

  await listen();
  return Object.assign(state, {
    close,
    signed,
    unsigned: (token) => new UnsecuredJWT(decodeJwt(token)).encode(),
    /** The modulus, which everybody may read, as the secret of an HMAC. */
    async hmac(token) {
      const payload = new TextEncoder().encode(JSON.stringify(decodeJwt(token)));
      return new CompactSign(payload)
        .setProtectedHeader({ alg: "HS256", kid: key.kid })
        .sign(new TextEncoder().encode(key.n));
    },
    async stranger(token) {
      const other = await freshKey(key.kid);
      const payload = new TextEncoder().encode(JSON.stringify(decodeJwt(token)));
      return new CompactSign(payload).setProtectedHeader({ alg: "RS256", kid: key.kid }).sign(await importJWK(other, "RS256"));
    },
    /** Comes back with another key: what it knew of people's logins is gone too. */
    async rotate() {
      await close();
      key = await freshKey("second");
      await listen();
    },
    async restart() {
      await listen();
    },
  });
}
