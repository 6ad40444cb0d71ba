# Shared by the scripts beside it: named steps with their duration, and where things are kept.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${HEADWAY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/headway}
# Data of demos: Postgres refuses to run as root and cannot reach below /root.
demos=/var/tmp/headway-demo
# What PyTorch asks for (Requires-Python of the version in worker/requirements.in).
python_floor=3.11
# In every directory that these scripts made for themselves. What lacks it is never removed.
mark=.made-by-headway
summary=()

# step NAME COMMAND…: runs it, prints what it is and how long it took, stops the script where it fails.
step() {
    local name=$1 begin=$SECONDS
    shift
    printf '\n==> %s (at %s s)\n' "$name" $SECONDS
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

# is_ours DIRECTORY: we made it, it is no link, and both it and its mark belong to whoever asks.
is_ours() {
    [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] && [ -f "$1/$mark" ] && [ ! -L "$1/$mark" ] && [ -O "$1/$mark" ]
}

# remove_ours DIRECTORY: removes what is_ours and not in use, refuses anything else that is there.
remove_ours() {
    local directory=${1%"${1##*[!/]}"} # a slash at the end would look through a link
    if [ ! -e "$directory" ] && [ ! -L "$directory" ]; then
        return 0
    fi
    if ! is_ours "$directory"; then
        echo "headway did not make $directory (there is no $mark of yours in it, or it is a link) and does not remove it:" \
            "name a directory that does not exist yet" >&2
        return 1
    fi
    if [ -e "$directory/lock" ] && ! flock -n "$directory/lock" true; then
        echo "a cluster runs in $directory: stop it first" >&2
        return 1
    fi
    rm -rf -- "$directory"
}

# make_ours DIRECTORY: an empty directory, private to us, in the place of one that was ours.
make_ours() {
    local directory=${1%"${1##*[!/]}"}
    remove_ours "$directory" && mkdir -p -- "$(dirname -- "$directory")" && mkdir -m 700 -- "$directory" && : >"$directory/$mark"
}

# venv_dir [REQUIREMENTS]: the virtual environment of a requirements file (default: the worker's). Other requirements, another
# Python ($HEADWAY_PYTHON, or python3) or another processor is another directory.
venv_dir() {
    local requirements=${1:-worker/requirements.txt} python
    python=$("${HEADWAY_PYTHON:-python3}" -c 'import sys, sysconfig; print("%d.%d-" % sys.version_info[:2] + sysconfig.get_platform())')
    printf '%s/venv-%s-%s' "$cache" "$python" "$(sha256sum "$root/$requirements" | cut -c1-12)"
}

# require_free_disk: fails where a build and the tests' data would fill the disk midway.
require_free_disk() {
    local wanted=${HEADWAY_FREE_DISK_GB:-15} directory free short=0
    for directory in "$root" "$cache" /var/tmp; do
        while [ ! -e "$directory" ]; do directory=$(dirname -- "$directory"); done
        free=$(($(df -P -k -- "$directory" | awk 'END { print $4 }') / 1000000))
        if [ "$free" -lt "$wanted" ]; then
            echo "headway: the disk of $directory has $free GB free; the tests need $wanted GB." \
                "Free some ('make clean-cache' removes the cache), or set HEADWAY_FREE_DISK_GB to what a build that is there needs" >&2
            short=1
        fi
    done
    [ $short = 0 ]
}
