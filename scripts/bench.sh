#!/usr/bin/env bash
# Benchmarks. Their committed results are under docs/measurements, each with the command that made it.
source "$(dirname "$0")/lib.sh"
cd "$root"
echo "load average: $(cut -d' ' -f1-3 /proc/loadavg); $(nproc) cores"
cargo bench --locked --quiet -p headway-sim --bench batches
cargo bench --locked --quiet -p headway-sim --bench rounds
cargo bench --locked --quiet -p headway-sim --bench curves
cargo bench --locked --quiet -p headway-scheduler --bench submits
cargo bench --locked --quiet -p headway-scheduler --bench recovery
# The solver's peers live outside the tree. Where they cannot be installed, the table comes without them.
peers=sim/benches/solver/requirements.txt
if scripts/install-python.sh "$peers"; then
    HEADWAY_PEERS_PYTHON="$(venv_dir "$peers")/bin/python"
    export HEADWAY_PEERS_PYTHON
fi
cargo bench --locked --quiet -p headway-sim --bench solver
