#!/usr/bin/env bash
# Installs the system packages Headway needs and the machine lacks. Asks first, unless YES=1 or CI is set.
# usage: install-system.sh [browser]
source "$(dirname "$0")/lib.sh"

has_postgres() {
    command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1
}

missing=()
has_postgres || missing+=(postgresql)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v curl >/dev/null || missing+=(curl)
if [ "${1:-}" = browser ]; then
    command -v chromium >/dev/null || missing+=(chromium)
fi

for tool in cargo node npm python3; do
    if ! command -v "$tool" >/dev/null; then
        echo "headway needs '$tool' and does not install it: install Rust (rustup), Node.js 20 or newer and Python 3.10 or newer first" >&2
        exit 1
    fi
done

node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 12) || (a === 20 && b >= 19) ? 0 : 1)' || {
    echo "headway needs Node.js 20.19 or newer, this is $(node --version)" >&2
    exit 1
}

[ ${#missing[@]} -eq 0 ] && { echo "nothing is missing"; exit 0; }
echo "system packages to install: ${missing[*]}"
if [ "${YES:-}" != 1 ] && [ -z "${CI:-}" ]; then
    read -r -p "install them now with apt-get? [y/N] " answer
    [ "$answer" = y ] || [ "$answer" = Y ] || { echo "not installed; set YES=1 to install without asking" >&2; exit 1; }
fi
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
# Debian starts a cluster of its own with the package; Headway never uses it.
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
