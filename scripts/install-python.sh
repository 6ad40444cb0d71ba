#!/usr/bin/env bash
# Creates the Python environment of the reference trainer once per set of requirements, and prints its path last.
source "$(dirname "$0")/lib.sh"

venv=$(venv_dir)
if [ ! -e "$venv/.complete" ]; then
    rm -rf "$venv"
    mkdir -p "$cache"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --disable-pip-version-check --progress-bar off -r "$root/worker/requirements.txt"
    touch "$venv/.complete"
fi
# Byte-compiled at once: the first start of four ranks would otherwise compile the same files four times.
"$venv/bin/python" -c 'import torch; print("PyTorch", torch.__version__)'
echo "$venv"
