#!/usr/bin/env bash
# The long versions: many simulated lifetimes, and the crash tests again and again.
source "$(dirname "$0")/lib.sh"
cd "$root"
seeds=${HEADWAY_SOAK_SEEDS:-10000}
rounds=${HEADWAY_SOAK_ROUNDS:-20}
cargo build --workspace --all-targets --quiet
step "simulation, $seeds lifetimes" cargo run --quiet --release -p headway-sim --example soak -- 0 "$seeds"
for round in $(seq "$rounds"); do
    step "crash tests, round $round of $rounds" cargo test -p headway-tests --test crash -- --test-threads=1
done
print_summary
