#!/usr/bin/env bash
# The long versions: every layout of the worker and a life under kills, 20,000 requests to the REST API, many simulated lifetimes, submits
# across 200 kills and across 45 takeovers, a million edited inputs for each reader of what strangers send, minutes of a network that fails, hundreds
# of kills of servers, primary and agents, hours of fire, the crash tests again and again. With HEADWAY_HIGHS=1 our solver is held against HiGHS instead of
# microlp; its sources take some 15 CPU minutes, cmake and libclang to build.
source "$(dirname "$0")/lib.sh"
cd "$root"
seeds=${HEADWAY_SOAK_SEEDS:-10000}
rounds=${HEADWAY_SOAK_ROUNDS:-20}
cargo build --locked --workspace --all-targets --quiet
worker_soak() {
    (cd worker && PYTHONPATH=src "$(venv_dir)/bin/python" -m pytest -q -s -rs soak)
}
step "worker: every layout, every pair of layouts, a life of reconfigurations and kills" worker_soak
adapters() {
    (cd worker && PYTHONPATH=src "$HEADWAY_ADAPTERS_PYTHON" -m pytest -q -s -rs tests/test_adapters.py tests/test_huggingface.py tests/test_lightning.py \
        soak/test_torchtitan.py soak/test_megatron.py)
}
# A Python that has the frameworks (docs/adapters/README.md).
[ -z "${HEADWAY_ADAPTERS_PYTHON:-}" ] || step "worker: adapters" adapters
checks=${HEADWAY_CROSS_CHECKS:-1000}
step "solver against an exact backend, 4 times $checks programs" env HEADWAY_CROSS_CHECKS="$checks" \
    cargo test --locked --release -p headway-solver ${HEADWAY_HIGHS:+--features highs} --test cross_check -- --nocapture
requests=${HEADWAY_API_REQUESTS:-300}
step "REST API, $requests requests per operation" scripts/fuzz-api.sh "$requests" "$RANDOM"
inputs=${HEADWAY_FUZZ_INPUTS:-1000000}
fuzz() { # package…: each of its targets, with numbers that no run has had
    HEADWAY_FUZZ_INPUTS="$inputs" HEADWAY_FUZZ_SEED=${HEADWAY_FUZZ_SEED:-$RANDOM} CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true \
        CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true cargo test --locked --release "$@" fuzz:: -- --nocapture
}
step "what strangers send, $inputs inputs for each reader" fuzz -p headway-api --lib
step "what jobs print and say, $inputs inputs for each reader" fuzz -p headway-agent --lib
step "what asks to join, $inputs inputs" fuzz -p headway-scheduler --lib
step "what is submitted and solved, $inputs inputs for each reader" fuzz -p headway-cli --bins
step "simulation, $seeds lifetimes" cargo run --locked --quiet --release -p headway-sim --example soak -- 0 "$seeds"
step "submits, 200 kills" env HEADWAY_KILLS=200 cargo test --locked -p headway-tests --test submits -- --nocapture
step "standby, 45 takeovers" env HEADWAY_TAKEOVERS=45 cargo test --locked -p headway-tests --test standby -- --nocapture
# HEADWAY_BLOWS kills and stops in all, in parts so that each begins with an empty queue; HEADWAY_CHAOS_SEED is the first seed of both.
seed=${HEADWAY_CHAOS_SEED:-1}
step "network, ${HEADWAY_CHAOS_SECONDS:=600} s, seed $seed" env HEADWAY_CHAOS_SECONDS="$HEADWAY_CHAOS_SECONDS" HEADWAY_CHAOS_SEED="$seed" \
    cargo test --locked -p headway-tests --test chaos -- --nocapture
blows=${HEADWAY_BLOWS:-300} part=60
for part_seed in $(seq "$seed" $((seed + (blows + part - 1) / part - 1))); do
    these=$((blows < part ? blows : part))
    blows=$((blows - these))
    step "kills, $these under ${HEADWAY_CLIENTS:-64} clients, seed $part_seed" env HEADWAY_BLOWS="$these" HEADWAY_CLIENTS="${HEADWAY_CLIENTS:-64}" \
        HEADWAY_CHAOS_SEED="$part_seed" cargo test --locked -p headway-tests --test kills -- --nocapture
done
for round in $(seq "$rounds"); do
    step "fire, seed $round" env HEADWAY_FIRE_SECONDS="${HEADWAY_SOAK_FIRE_SECONDS:-300}" HEADWAY_FIRE_SEED="$round" \
        cargo test --locked -p headway-tests --test fire -- --nocapture
    step "crash tests, round $round of $rounds" cargo test --locked -p headway-tests --test crash -- --test-threads=1
done
step "browser, each page in each theme at each width" env HEADWAY_BROWSER=all sh -c "cd tests/browser && npm ci --no-audit --no-fund --loglevel=error && node --test --test-reporter=spec pages.test.mjs"
print_summary
