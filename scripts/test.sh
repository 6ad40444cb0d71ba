#!/usr/bin/env bash
# Everything `make test` does, in named steps.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/flaky.sh"
cd "$root"

# Nextest selects among what the build step has built. It is the one of scripts/requirements.txt, whatever the machine has.
rust_tests() { # packages…
    local nextest
    nextest=$(venv_dir scripts/requirements.txt)/bin/cargo-nextest
    "$nextest" nextest run --locked --profile ci --no-tests=pass --workspace -E "$(printf 'package(%s) + ' "$@")none()"
}

cluster_tests() {
    local report=${CARGO_TARGET_DIR:-target}/nextest/ci/junit.xml status=0
    rm -f "$report"
    rust_tests headway-tests || status=$?
    # Also where another test failed. Nothing that was not built writes a report.
    [ ! -f "$report" ] || record_flaky_rust_tests "$report"
    return $status
}

worker_tests() {
    local venv
    venv=$(venv_dir)
    (cd worker && PYTHONPATH=src "$venv/bin/python" -m pytest -q --reruns 1)
}

# The arithmetic again with the kernels of other processors: a machine's kind must not decide whether tests pass.
numeric_tests() {
    local venv kernels
    venv=$(venv_dir)
    for kernels in default avx2; do
        (cd worker && ATEN_CPU_CAPABILITY=$kernels PYTHONPATH=src "$venv/bin/python" -m pytest -q \
            tests/test_{accumulator,meter,model,dropout,squares}.py -k 'not estimate and not brute_force and not damping') || return 1
    done
}

web_tests() {
    (cd web && npx vitest run)
}

browser_tests() {
    cd tests/browser
    # What tells how soon something is on the screen runs alone. Much of the other files is waiting: two at a time take little more than half as long.
    local alone=(flows.test.mjs incidents.test.mjs) others=() file
    for file in *.test.mjs; do
        [[ " ${alone[*]} " == *" $file "* ]] || others+=("$file")
    done
    npm ci --no-audit --no-fund --loglevel=error &&
        browser_files 2 "${others[@]}" &&
        browser_files 1 "${alone[@]}"
}

vulnerabilities() {
    local status=0
    scripts/check-dependencies.sh advisories || status=$?
    if [ $status = 75 ]; then
        summary+=("LEFT OUT  known vulnerabilities: their database cannot be fetched from here")
        status=0
    fi
    return $status
}

follow_guides() {
    local status=0 as_root=()
    if [ "$(id -u)" != 0 ] && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    fi
    "${as_root[@]}" python3 scripts/tests/guide.py --binary "${CARGO_TARGET_DIR:-target}/debug/headway" || status=$?
    if [ $status = 75 ]; then
        summary+=("LEFT OUT  the guides: it takes root, namespaces and Debian's Postgres")
        status=0
    fi
    return $status
}

# Everything is built once: what rustc keeps to build faster the next time only fills the disk.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

core=(headway-types headway-goodput headway-solver headway-planner headway-calibration headway-engine headway-node headway-emulation
    headway-forecast headway-estimator)

step "free disk" require_free_disk
step "system packages" scripts/install-system.sh browser
step "python environment" scripts/install-python.sh
step "programs of the scripts" scripts/install-python.sh scripts/requirements.txt
step "scripts: directories" scripts/tests/directories.sh
step "scripts: what a machine lacks" scripts/tests/system.sh
step "scripts: retries" scripts/tests/flaky.sh
step "scripts: this repository" scripts/tests/repository.sh
step "scripts: dashboards, alerts" python3 scripts/tests/monitoring.py
step "worker: lints, types" scripts/check-worker.sh
step "dependencies: licences, sources" scripts/check-dependencies.sh
step "dependencies: known vulnerabilities" vulnerabilities
step "web page" scripts/build-web.sh
step "web units" web_tests
step "format" cargo fmt --all --check
step "lints" cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
step "build" cargo build --locked --workspace --all-targets --quiet
step "the binary's C library" scripts/check-glibc.sh "${CARGO_TARGET_DIR:-target}/debug/headway"
step "core" rust_tests "${core[@]}"
step "store, scheduler, agent, api, cli" rust_tests headway-fuzz headway-api headway-scheduler headway-agent headway-cli
step "simulation" rust_tests headway-sim
step "evidence" rust_tests headway-evidence
step "worker" worker_tests
step "worker: arithmetic of other processors" numeric_tests
export HEADWAY_TEST_PYTHON="$(venv_dir)/bin/python"
step "end to end and crash" cluster_tests
step "guides: their commands" follow_guides
step "API: document, generated client, fuzz" env HEADWAY_BINARY="${CARGO_TARGET_DIR:-target}/debug/headway" scripts/fuzz-api.sh
step "browser" browser_tests
print_summary
