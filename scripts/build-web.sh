#!/usr/bin/env bash
# Builds the web page into web/dist, from where the scheduler embeds it, and beside it the licences of what page and binary
# are made of, and the worker's wheel.
source "$(dirname "$0")/lib.sh"

"$root/scripts/install-python.sh" scripts/wheel/requirements.txt >/dev/null
cd "$root/web"
stamp=node_modules/.installed
if [ ! -e $stamp ] || [ package-lock.json -nt $stamp ]; then
    npm ci --no-audit --no-fund --loglevel=error
    touch $stamp
fi
npm run --silent build
python3 "$root/scripts/third-party-licenses.py" >dist/third-party-licenses.txt.new
"$(venv_dir scripts/wheel/requirements.txt)/bin/python" "$root/scripts/build-wheel.py" dist/simple
mv dist/third-party-licenses.txt.new dist/third-party-licenses.txt
