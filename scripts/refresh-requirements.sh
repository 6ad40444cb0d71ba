#!/usr/bin/env bash
# Pins what the requirements.in files name, with all that it needs and the hashes of every wheel, for every Python and
# processor that the floor allows. Versions that are pinned already stay unless `--upgrade` is given.
source "$(dirname "$0")/lib.sh"
cd "$root"
"$root/scripts/install-python.sh" scripts/requirements.txt
for wanted in worker/requirements.in scripts/requirements.in scripts/{wheel,pytest}/requirements.in tests/fuzz/requirements.in; do
    "$(venv_dir scripts/requirements.txt)/bin/uv" pip compile --quiet --universal --python-version "$python_floor" --generate-hashes \
        --custom-compile-command "make requirements" "$@" --output-file "${wanted%.in}.txt" "$wanted"
done
