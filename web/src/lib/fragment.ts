/** The access token that a link carries in its fragment. */
export function tokenIn(hash: string): string | null {
  const [, token] = /^#token=(.+)$/.exec(hash) ?? [];
  return token ? decodeURIComponent(token).trim() : null;
}
