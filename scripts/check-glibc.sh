#!/usr/bin/env bash
# Says which versions of the GNU C library a binary needs, and fails above the oldest that the administrators' guide names.
source "$(dirname "$0")/lib.sh"

binary=$1 most=2.34
needed=$(objdump --dynamic-syms "$binary" | grep -o 'GLIBC_[0-9.]*' | sort --unique --version-sort)
newest=$(tail -n 1 <<<"${needed//GLIBC_/}")
if [ -z "$newest" ] || [ "$(printf '%s\n' "$newest" "$most" | sort --version-sort | tail -n 1)" != "$most" ]; then
    echo "$binary needs glibc ${newest:-(unknown)}, and may need $most at most; its newest symbols:"
    objdump --dynamic-syms "$binary" | grep "GLIBC_$newest\b" || true
    exit 1
fi
