#!/usr/bin/env bash
# Creates the Python environment of a requirements file (default: the reference trainer's) once, and prints its path last.
# usage: install-python.sh [REQUIREMENTS]
source "$(dirname "$0")/lib.sh"

requirements=${1:-worker/requirements.txt}
venv=$(venv_dir "$requirements")
# A Python that was replaced since leaves an environment that does not run.
if [ ! -e "$venv/.complete" ] || ! "$venv/bin/python" -c pass; then
    make_ours "$venv"
    "${HEADWAY_PYTHON:-python3}" -m venv "$venv"
    # Wheels only, each with the hash that is written down: nothing is built, nothing unexpected is run.
    "$venv/bin/pip" install --disable-pip-version-check --progress-bar off --require-hashes --only-binary :all: \
        -r "$root/$requirements"
    touch "$venv/.complete"
fi
if [ "$requirements" = worker/requirements.txt ]; then
    # Byte-compiled at once: the first start of four ranks would otherwise compile the same files four times.
    "$venv/bin/python" -c 'import torch; print("PyTorch", torch.__version__)'
fi
echo "$venv"
