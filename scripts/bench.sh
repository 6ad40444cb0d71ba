#!/usr/bin/env bash
# Benchmarks. Their committed results are under docs/measurements, each with the command that made it.
source "$(dirname "$0")/lib.sh"
cd "$root"
echo "load average: $(cut -d' ' -f1-3 /proc/loadavg); $(nproc) cores"
cargo bench --locked --quiet -p headway-sim --bench batches
cargo bench --locked --quiet -p headway-sim --bench rounds
cargo bench --locked --quiet -p headway-sim --bench curves
cargo bench --locked --quiet -p headway-scheduler --bench submits
cargo bench --locked --quiet -p headway-scheduler --bench explain
cargo bench --locked --quiet -p headway-scheduler --bench lists
cargo bench --locked --quiet -p headway-scheduler --bench stream
cargo bench --locked --quiet -p headway-scheduler --bench recovery
cargo bench --locked --quiet -p headway-scheduler --bench joins
# Against HiGHS where that is asked for: its sources take some 15 CPU minutes, cmake and libclang to build.
cargo bench --locked --quiet -p headway-sim ${HEADWAY_HIGHS:+--features highs} --bench solver
