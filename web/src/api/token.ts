// The access token lives in session storage; a link from `headway up` carries it in the fragment, which no server sees.

const KEY = "headway-token";

/** Takes the token out of the address bar, if it is there. */
export function adoptTokenFromFragment(): void {
  const match = /^#token=(.+)$/.exec(location.hash);
  if (match?.[1]) {
    sessionStorage.setItem(KEY, decodeURIComponent(match[1]));
    history.replaceState(null, "", location.pathname + location.search);
  }
}

export function token(): string | null {
  return sessionStorage.getItem(KEY);
}

export function setToken(value: string): void {
  sessionStorage.setItem(KEY, value.trim());
}

export function forgetToken(): void {
  sessionStorage.removeItem(KEY);
}
