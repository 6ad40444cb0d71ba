#!/usr/bin/env bash
# `make demo`: from a bare machine to a living cluster with three real training jobs, and a summary.
source "$(dirname "$0")/lib.sh"
cd "$root"

# Before anything is built: what is there may not be ours.
if [ -n "${HEADWAY_DEMO_DIR:-}" ]; then
    remove_ours "$HEADWAY_DEMO_DIR"
fi

# `up` runs in a session of its own: Ctrl-C ends the table, and this trap then stops the cluster, once. Data that nobody
# gave a name goes with a demo that ended well; otherwise its logs may say why.
cleanup() {
    local status=$?
    if [ -n "${up_pid:-}" ] && kill -0 "$up_pid" 2>/dev/null; then
        kill -TERM "$up_pid" && wait "$up_pid" || true
    fi
    if [ -e "${data:-}/up.log" ] && { [ $status != 0 ] || [ -n "${HEADWAY_DEMO_DIR:-}" ]; }; then
        echo "data and logs of the demo are in $data" >&2
    elif [ -n "${data:-}" ]; then
        remove_ours "$data"
    fi
}
trap cleanup EXIT

step "system packages" scripts/install-system.sh
step "web page" scripts/build-web.sh
step "headway (optimised build)" cargo build --locked --release -p headway-cli
step "python environment (PyTorch)" scripts/install-python.sh

python="$(venv_dir)/bin/python"
headway=target/release/headway
port=${HEADWAY_DEMO_PORT:-7600}

# Others may write beside it: below a name that nobody can foretell, or where the user says.
if [ -n "${HEADWAY_DEMO_DIR:-}" ]; then
    make_ours "$HEADWAY_DEMO_DIR"
    data=$HEADWAY_DEMO_DIR
else
    data=$(mktemp -d "$demos.XXXXXX")
    : >"$data/$mark"
fi

printf '\n==> headway up\n'
umask 077
XDG_CONFIG_HOME="$data/config" setsid "$headway" up --data-dir "$data" --python "$python" --listen "127.0.0.1:$port" \
    --agent-listen "127.0.0.1:$((port + 1))" >"$data/up.log" 2>&1 &
up_pid=$!
for _ in $(seq 600); do
    grep -q '^Headway is up' "$data/up.log" && break
    kill -0 "$up_pid" 2>/dev/null || { cat "$data/up.log" >&2; exit 1; }
    sleep 0.1
done
cat "$data/up.log"
echo "  open      http://127.0.0.1:$port/#token=$(cat "$data/secrets/admin.token")"
printf '\nready %s s after `make demo` began\n' "$SECONDS"

printf '\n==> three training jobs\n'
begin=$SECONDS
"$headway" demo --url "http://127.0.0.1:$port" --token-file "$data/secrets/admin.token" \
    --worker-path "$root/worker/src" "$@"
printf '\ndemo: %s s after installation\n' $((SECONDS - begin))
print_summary
if [ -t 0 ] && [ -z "${YES:-}${CI:-}" ]; then
    read -r -p "The cluster still runs: look at the web page above. Enter stops it. " _
fi
