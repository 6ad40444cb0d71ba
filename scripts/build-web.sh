#!/usr/bin/env bash
# Builds the web page into web/dist, from where the scheduler embeds it.
source "$(dirname "$0")/lib.sh"

cd "$root/web"
stamp=node_modules/.installed
if [ ! -e $stamp ] || [ package-lock.json -nt $stamp ]; then
    npm ci --no-audit --no-fund --loglevel=error
    touch $stamp
fi
npm run --silent build
