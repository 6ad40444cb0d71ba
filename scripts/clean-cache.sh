#!/usr/bin/env bash
# Removes what these scripts have put outside the repository: Python environments in the cache, and data of demos that did not
# end well. Only what carries our mark goes; the rest is named and stays.
# usage: clean-cache.sh [DIRECTORY…]
source "$(dirname "$0")/lib.sh"

[ $# -gt 0 ] || set -- "$cache"/* "$demos".*
left=0
for directory in "$@"; do
    [ -d "$directory" ] || continue
    size=$(du -sh -- "$directory" 2>/dev/null | cut -f1) || true
    if remove_ours "$directory"; then
        echo "removed $directory ($size)"
    else
        left=1
    fi
done
if [ -d "$cache" ]; then
    rmdir --ignore-fail-on-non-empty -- "$cache"
fi
exit $left
