# Shared by the scripts beside it: named steps with their duration, and where things are kept.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${HEADWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/headway}
summary=()

# step NAME COMMAND…: runs it, prints what it is and how long it took, stops the script where it fails.
step() {
    local name=$1 begin=$SECONDS
    shift
    printf '\n==> %s\n' "$name"
    if ! "$@"; then
        printf '\n==> FAILED: %s (after %s s)\n' "$name" $((SECONDS - begin)) >&2
        exit 1
    fi
    summary+=("$(printf '%5s s  %s' $((SECONDS - begin)) "$name")")
}

print_summary() {
    printf '\n==> steps\n'
    printf '%s\n' "${summary[@]}"
}

# The virtual environment of the present requirements; another set of requirements is another directory.
venv_dir() {
    printf '%s/venv-%s' "$cache" "$(sha256sum "$root/worker/requirements.txt" | cut -c1-12)"
}
