// An authorization server for the tests of mrtr-auth. Its resources are all URLs on 127.0.0.1. It
// prints `listening PORT`, and serves until its stdin ends. `interop/README.md` describes its
// clients, and the requests below `/test` that control it.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";

import Provider, { errors } from "oidc-provider";

// The notices of the provider, about settings that are for development, are no results.
console.info = () => {};
console.warn = () => {};

const newKeys = () => {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const [privateJwk, publicJwk] = [privateKey, publicKey].map((key) => key.export({ format: "jwk" }));
  return { privateKey, privateJwk, publicJwk };
};

const clientKeys = newKeys();
const withoutUser = { redirect_uris: [], response_types: [], grant_types: ["client_credentials"] };
const clients = [
  { ...withoutUser, client_id: "basic", client_secret: "a secret: 100 %" },
  {
    ...withoutUser,
    client_id: "jwt",
    token_endpoint_auth_method: "private_key_jwt",
    token_endpoint_auth_signing_alg: "ES256",
    jwks: { keys: [{ ...clientKeys.publicJwk, kid: "client key" }] },
  },
  {
    client_id: "desk",
    token_endpoint_auth_method: "none",
    application_type: "native",
    redirect_uris: ["http://127.0.0.1/callback"],
    grant_types: ["authorization_code", "refresh_token"],
  },
  { ...withoutUser, client_id: "booking", client_secret: "secret of the resource", grant_types: [] },
];

// The lifetime of access tokens, in seconds.
let lifetime = 3600;
// The grants that were successful, with their resources.
const grants = [];

const resource = (_, indicator) => {
  if (new URL(indicator).hostname !== "127.0.0.1") throw new errors.InvalidTarget();
  return {
    scope: "booking:read booking:pay",
    accessTokenTTL: lifetime,
    accessTokenFormat: indicator.endsWith("/opaque") ? "opaque" : "jwt",
  };
};

// Keys of one kind, so that their order chooses the one that signs.
let signingKeys = [newKeys().privateJwk];
const [nonceSecret, cookieKey] = [randomBytes(32), randomBytes(32).toString("hex")];

// A provider reads its keys once. Another one takes its place to rotate them: all providers of a
// process have the same tokens and sessions.
const start = () => {
  const provider = new Provider(issuer, {
    clients,
    jwks: { keys: signingKeys },
    cookies: { keys: [cookieKey] },
    scopes: ["openid", "offline_access", "booking:read", "booking:pay"],
    clientDefaults: { id_token_signed_response_alg: "ES256" },
    pkce: { required: () => true },
    rotateRefreshToken: () => true,
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      dPoP: { enabled: true, nonceSecret, requireNonce: () => true },
      introspection: { enabled: true },
      registration: { enabled: true },
      resourceIndicators: { enabled: true, getResourceServerInfo: resource, useGrantedResource: () => true },
      revocation: { enabled: true },
    },
  });
  provider.on("grant.success", ({ oidc: { params } }) => {
    grants.push([params.grant_type, params.resource]);
  });
  provider.on("server_error", (_, error) => console.error(error));
  return provider.callback();
};

const control = {
  "/test/client-key": () => clientKeys.privateKey.export({ type: "pkcs8", format: "pem" }),
  "/test/grants": ({ searchParams }) => {
    const wanted = searchParams.get("resource");
    return grants.filter(([, resource]) => resource === wanted).map(([grant]) => grant).join(" ");
  },
  "/test/lifetime": ({ searchParams }) => {
    lifetime = Number(searchParams.get("seconds"));
    return "";
  },
  // The next key signs at once. Tokens of the last key stay valid, those before do not.
  "/test/rotate": () => {
    signingKeys = [newKeys().privateJwk, signingKeys[0]];
    handle = start();
    return "";
  },
};

const server = createServer((request, response) => {
  const url = new URL(request.url, issuer);
  const answer = control[url.pathname];
  if (answer) response.end(answer(url));
  else handle(request, response);
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
const { port } = server.address();
const issuer = `http://127.0.0.1:${port}`;
let handle = start();
console.log(`listening ${port}`);
process.stdin.on("end", () => process.exit()).resume();
