#!/usr/bin/env bash
# Lints, format and types of the worker and of the examples of training scripts. Syntax is held to the oldest Python of
# worker/pyproject.toml, the standard library to each; its tests that need no PyTorch run under those that are here.
source "$(dirname "$0")/lib.sh"
cd "$root"

scripts/install-python.sh >/dev/null
scripts/install-python.sh scripts/requirements.txt >/dev/null
bin=$(venv_dir scripts/requirements.txt)/bin
versions=$(sed -n 's/.*"Programming Language :: Python :: \(3\.[0-9]*\)",/\1/p' worker/pyproject.toml)
torch_free=(tests/test_{anomaly,check,learning_rate,noise,probe_judgement,sdk,secret_files,vectors,watch,window,zygote}.py)

# python_of VERSION: one that runs; pyenv has shims of those that nobody chose.
python_of() {
    local candidate
    for candidate in $(type -ap "python$1") "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

try_under() { # PYTHON
    local venv
    venv=$(HEADWAY_PYTHON=$1 "$root/scripts/install-python.sh" scripts/pytest/requirements.txt | tail -1) &&
        PYTHONPATH=src "$venv/bin/python" -m pytest -p no:cacheprovider "${torch_free[@]}"
}

cd worker
checked=(. ../examples/training ../scripts/build-wheel.py)
"$bin/ruff" check --quiet --config pyproject.toml "${checked[@]}"
"$bin/ruff" format --quiet --check --config pyproject.toml "${checked[@]}"
# Frameworks that the examples use are not installed here: what comes from them has no types.
"$bin/mypy" --python-executable "$(venv_dir)/bin/python" src ../examples/training/*.py

own=$("${HEADWAY_PYTHON:-python3}" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
missing=() tried=()
for version in $versions; do
    # Without PyTorch, whose types take most of the time and are the same.
    "$bin/mypy" --config-file ../scripts/mypy-library.ini --python-version "$version" --no-site-packages src
    python=$(python_of "$version")
    if [ "$version" = "$own" ]; then
        continue # which runs all tests
    elif [ -z "$python" ]; then
        missing+=("$version")
    else
        output=$(mktemp)
        try_under "$python" >"$output" 2>&1 &
        tried+=("$version $! $output")
    fi
done
for each in "${tried[@]}"; do
    read -r version process output <<<"$each"
    wait "$process" || { kill $(jobs -p) 2>/dev/null || true; cat "$output" >&2; echo "the worker's tests fail under Python $version" >&2; exit 1; }
    echo "Python $version: $(tail -1 "$output")"
    rm -- "$output"
done
echo "Python $own: the worker's own, with all tests${missing:+; not on this machine, so types alone: ${missing[*]}}"
