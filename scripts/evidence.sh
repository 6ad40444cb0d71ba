#!/usr/bin/env bash
# The evidence report under docs/evidence, anew. About an hour of CPU; a run that is interrupted goes on with KEEP=1.
source "$(dirname "$0")/lib.sh"
cd "$root"
[ -n "${KEEP:-}" ] || rm -f docs/evidence/runs.jsonl
cargo build --locked --release --quiet -p headway-cli
nice -n 10 target/release/headway evaluate --report docs/evidence --seeds "${SEEDS:-1..3}"
