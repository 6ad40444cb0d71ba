# Sourced by test.sh. Tests of clusters, pages and workers may fail once: what passes on its retry only is FLAKY, is
# listed in the last lines of `make test`, and is mended by its cause next. Other tests are never retried.

# One line for each test that passed on a retry. The worker's conftest.py writes it too.
FLAKY_LIST=$(mktemp)
export FLAKY_LIST
# Also where a later step fails.
trap 'print_flaky; rm -f "$FLAKY_LIST"' EXIT

# record_flaky_rust_tests REPORT: those of a JUnit report of nextest.
record_flaky_rust_tests() {
    python3 - "$1" >>"$FLAKY_LIST" <<'END'
import sys
from xml.etree import ElementTree

for case in ElementTree.parse(sys.argv[1]).iter("testcase"):
    if any(child.tag.startswith("flaky") for child in case):
        print(case.get("classname"), case.get("name"))
END
}

# browser_files CONCURRENCY FILE…: runs these test files, and those with a failure once more.
browser_files() {
    local concurrency=$1 failed again
    shift
    failed=$(mktemp)
    if ! run_browser_files "$concurrency" "$failed" "$@"; then
        mapfile -t again <"$failed"
        rm -f "$failed"
        # A runner that failed and names no file has not run: a retry would hide it.
        [ ${#again[@]} -gt 0 ] || return 1
        echo "once more: ${again[*]}"
        run_browser_files 1 /dev/null "${again[@]}" || return 1
        printf 'browser %s\n' "${again[@]}" >>"$FLAKY_LIST"
    fi
    rm -f "$failed"
}

run_browser_files() { # CONCURRENCY FAILED FILE…
    node --test --test-concurrency="$1" --test-reporter=spec --test-reporter-destination=stdout \
        --test-reporter=./failed-files.mjs --test-reporter-destination="$2" "${@:3}"
}

print_flaky() {
    [ -s "$FLAKY_LIST" ] || return 0
    printf '\n==> FLAKY: passed on a retry only; to be mended next\n'
    sort -u "$FLAKY_LIST" | sed 's/^/FLAKY  /'
}
