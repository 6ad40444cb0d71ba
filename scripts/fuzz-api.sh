#!/usr/bin/env bash
# Asks a living cluster's REST API thousands of things, right and wrong, and holds every reply to the OpenAPI document.
# usage: fuzz-api.sh [REQUESTS PER OPERATION] [SEED]
source "$(dirname "$0")/lib.sh"
cd "$root"
"$root/scripts/install-python.sh" tests/fuzz/requirements.txt >/dev/null
exec "$(venv_dir tests/fuzz/requirements.txt)/bin/python" tests/fuzz/fuzz.py --per-operation "${1:-34}" --seed "${2:-1}"
