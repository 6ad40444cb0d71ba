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

fact_worker_and_server_have_one_version() {
    local worker server
    worker=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$root/worker/src/headway/version.py")
    server=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")
    [ -n "$worker" ] && [ "$worker" = "$server" ] || { echo "the worker is $worker, the server $server"; return 1; }
}

# A server that has applied a migration does not start with another of its number.
fact_no_migration_that_was_published_changes() {
    (cd "$root/migrations" && sha256sum --check --quiet "$root/scripts/tests/migrations.sha256") ||
        { echo "restore it and add a new migration (of a new one: cd migrations && sha256sum NAME >>../scripts/tests/migrations.sha256)"; return 1; }
    local named
    named=$(awk '{print $2}' "$root/scripts/tests/migrations.sha256" | sort)
    [ "$named" = "$(cd "$root/migrations" && ls -- *.sql | sort)" ] || { echo "a migration has no checksum, or is gone"; return 1; }
}

fact_the_worker_has_the_notices_of_the_repository() {
    cmp "$root/NOTICE" "$root/worker/NOTICE"
}

# What a page names as shown by a test, `file::test`, and the files that it names.
fact_pages_of_promises_name_tests_and_files_that_exist() {
    local page named file test
    for page in docs/promises.md docs/security.md; do
        named=$(grep -oE '`[A-Za-z0-9_./-]+::[a-z0-9_]+`' "$root/$page" | tr -d '`' | sort -u)
        [ "$(wc -l <<<"$named")" -gt 20 ]
        while IFS= read -r test; do
            file=${test%%::*}
            grep -qE "(fn|def) ${test##*::}\b" "$root/$file" || { echo "$page: there is no $test"; return 1; }
            # A function that no runner calls shows nothing.
            [[ $file != *.rs ]] || grep -B6 -E "fn ${test##*::}\b" "$root/$file" | grep -qE '#\[(tokio::)?test|proptest!' ||
                { echo "$page: $test is no test"; return 1; }
        done <<<"$named"
        for file in $(grep -oE '`(core|api|scheduler|agent|cli|sim|worker|web|tests|scripts|deploy)/[A-Za-z0-9_./-]+`' "$root/$page" | tr -d '`' | sort -u); do
            [ -e "$root/$file" ] || { echo "$page: there is no $file"; return 1; }
        done
    done
}

# Where files are linked into one binary, cargo looks for none by itself.
fact_every_file_of_tests_is_run() {
    local manifest directory file name
    for manifest in $(cd "$root" && git ls-files '*Cargo.toml' | xargs grep -l '^autotests = false'); do
        directory=$root/$(dirname "$manifest")/tests
        for file in "$directory"/*.rs; do
            name=$(basename "$file" .rs)
            [ "$name" = main ] || grep -q "^mod $name;" "$directory/main.rs" || grep -q "^name = \"$name\"" "$root/$manifest" ||
                { echo "$file is run by nobody"; return 1; }
        done
    done
}

# It replaces the allocator to count what tests take.
fact_only_tests_depend_on_the_crate_that_counts_memory() {
    local manifest
    for manifest in $(cd "$root" && git ls-files '*Cargo.toml'); do
        ! sed -n '/^\[dependencies\]/,/^\[/p' "$root/$manifest" | grep -E '^(headway-fuzz|allocation-counter)' || [ "$manifest" = fuzz/Cargo.toml ] ||
            { echo "$manifest"; return 1; }
    done
}

run_facts
