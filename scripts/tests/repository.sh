#!/usr/bin/env bash
# Facts about the files of this repository.
source "$(dirname "$0")/assert.sh"

fact_cargo_never_changes_the_lock_file() {
    local calls
    calls=$(cd "$root" && grep -nE 'cargo (bench|build|check|clippy|nextest run|run|test)' Makefile scripts/*.sh)
    [ "$(wc -l <<<"$calls")" -gt 10 ]
    if grep -v -e --locked <<<"$calls"; then
        return 1
    fi
}

fact_every_wanted_python_package_is_pinned_with_hashes() {
    local wanted package
    for wanted in $(cd "$root" && git ls-files '*requirements.in'); do
        for package in $(sed 's/#.*//; s/==/ /' "$root/$wanted" | awk '{print $1}'); do
            grep -A1 "^$package==" "$root/${wanted%.in}.txt" | grep -q -e --hash=sha256: || { echo "$wanted: $package"; return 1; }
        done
        for package in $(sed 's/#.*//' "$root/$wanted" | grep ==); do
            grep -q "^$package " "$root/${wanted%.in}.txt" || { echo "$wanted: $package"; return 1; }
        done
    done
}

run_facts
