#!/usr/bin/env bash
# Holds the OpenAPI document to its specification, calls a living cluster with a client that is generated from it, and asks thousands of things,
# right and wrong: every reply is held to the document.
# usage: fuzz-api.sh [REQUESTS PER OPERATION] [SEED]
source "$(dirname "$0")/lib.sh"
cd "$root"
"$root/scripts/install-python.sh" tests/fuzz/requirements.txt >/dev/null
python="$(venv_dir tests/fuzz/requirements.txt)/bin/python"
"$python" tests/fuzz/client.py
exec "$python" tests/fuzz/fuzz.py --per-operation "${1:-34}" --seed "${2:-1}"
