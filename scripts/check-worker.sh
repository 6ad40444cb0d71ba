#!/usr/bin/env bash
# Lints, format and types of the worker and of the examples of training scripts. Syntax is held to the oldest Python of
# worker/pyproject.toml.
source "$(dirname "$0")/lib.sh"
cd "$root"

scripts/install-python.sh >/dev/null
scripts/install-python.sh scripts/requirements.txt >/dev/null
bin=$(venv_dir scripts/requirements.txt)/bin
cd worker
checked=(. ../examples/training ../scripts/build-wheel.py)
"$bin/ruff" check --quiet --config pyproject.toml "${checked[@]}"
"$bin/ruff" format --quiet --check --config pyproject.toml "${checked[@]}"
# Frameworks that the examples use are not installed here: what comes from them has no types.
"$bin/mypy" --python-executable "$(venv_dir)/bin/python" src ../examples/training/*.py
