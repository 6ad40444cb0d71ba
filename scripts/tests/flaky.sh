#!/usr/bin/env bash
# Facts about retries: what passes on its retry is listed, what fails twice fails.
source "$(dirname "$0")/assert.sh"
source "$root/scripts/flaky.sh"

empty_list() {
    FLAKY_LIST=$PWD/list
    : >"$FLAKY_LIST"
}

# A test file that fails as often as it is told.
browser_test_that_fails() { # TIMES
    cp "$root/tests/browser/failed-files.mjs" .
    cat >page.test.mjs <<END
import { test } from "node:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
test("a page", () => {
  const runs = existsSync("runs") ? Number(readFileSync("runs", "utf8")) : 0;
  writeFileSync("runs", String(runs + 1));
  if (runs < $1) throw new Error("not yet");
});
END
    printf 'import { test } from "node:test";\ntest("another page", () => {});\n' >other.test.mjs
}

fact_a_page_that_passes_on_its_retry_is_listed() {
    empty_list
    browser_test_that_fails 1
    browser_files 2 page.test.mjs other.test.mjs
    [ "$(cat "$FLAKY_LIST")" = "browser page.test.mjs" ]
    [[ $(print_flaky) == *"FLAKY  browser page.test.mjs"* ]]
}

fact_a_page_that_fails_twice_fails() {
    empty_list
    browser_test_that_fails 2
    ! browser_files 2 page.test.mjs other.test.mjs
}

fact_pages_that_pass_are_not_listed() {
    empty_list
    browser_test_that_fails 0
    browser_files 2 page.test.mjs other.test.mjs
    [ "$(cat runs)" = 1 ] && [ ! -s "$FLAKY_LIST" ] && [ -z "$(print_flaky)" ]
}

fact_a_cluster_that_passes_on_its_retry_is_listed() {
    empty_list
    cat >junit.xml <<END
<testsuites><testsuite name="headway-tests::kills">
<testcase name="nothing_is_lost" classname="headway-tests::kills"><flakyFailure timestamp="2026-01-01" type="x"/></testcase>
<testcase name="nothing_is_doubled" classname="headway-tests::kills"/>
</testsuite></testsuites>
END
    record_flaky_rust_tests junit.xml
    [ "$(cat "$FLAKY_LIST")" = "headway-tests::kills nothing_is_lost" ]
}

fact_a_full_disk_is_refused_with_both_numbers() {
    local said
    if said=$(HEADWAY_FREE_DISK_GB=1000000 require_free_disk 2>&1); then
        return 1
    fi
    [[ $said == *" GB free; the tests need 1000000 GB"*HEADWAY_FREE_DISK_GB* ]]
    HEADWAY_FREE_DISK_GB=0 require_free_disk
}

run_facts
