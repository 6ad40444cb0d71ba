#!/usr/bin/env bash
# Installs the system packages Headway needs and the machine lacks. Asks first, unless YES=1 or CI is set. Says what it
# cannot do before anything is built.
# usage: install-system.sh [browser]
source "$(dirname "$0")/lib.sh"

refuse() {
    printf 'headway: %s\n' "$@" >&2
    exit 1
}

for tool in cargo node npm python3; do
    command -v "$tool" >/dev/null || refuse \
        "'$tool' is needed and not installed from here: install Rust (rustup), Node.js 20.19 or newer and Python $python_floor or newer first"
done
python3 -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$python_floor'.split('.'))))" ||
    refuse "PyTorch needs Python $python_floor or newer, and python3 is $(python3 --version 2>&1)"
node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 12) || (a === 20 && b >= 19) ? 0 : 1)' ||
    refuse "Node.js 20.19 or newer is needed, and node is $(node --version)"

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
    # Without it the tests of the device filter only say that nothing is isolated.
    [ -x /usr/sbin/bpftool ] || missing+=(bpftool)
fi

[ ${#missing[@]} -eq 0 ] && { echo "nothing is missing"; exit 0; }
echo "system packages to install: ${missing[*]}"
command -v apt-get >/dev/null || refuse "there is no apt-get here: install what those packages of Debian hold by other means, then start again"
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || refuse "you are not root and there is no sudo: have root run 'apt-get install --no-install-recommends ${missing[*]}', then start again"
    sudo=sudo
fi
if [ "${YES:-}" != 1 ] && [ -z "${CI:-}" ]; then
    read -r -p "install them now with apt-get? [y/N] " answer || true # nobody there is a no
    [ "$answer" = y ] || [ "$answer" = Y ] || refuse "not installed; set YES=1 to install without asking"
fi
# Debian starts a cluster of its own with the package; Headway never uses it.
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
