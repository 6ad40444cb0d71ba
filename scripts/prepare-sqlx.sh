#!/usr/bin/env bash
# Rewrites .sqlx/ (what the query! macros know offline) from the migrations and the queries in scheduler/src/store.
# Needs Postgres binaries (14 or newer); starts a throw-away server on a unix socket and removes it again.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1 || true)
[ -n "$bin" ] && PATH="$bin:$PATH"
scratch=$(mktemp -d /tmp/headway-sqlx.XXXXXX)
as=()
if [ "$(id -u)" = 0 ]; then # Postgres refuses to run as root.
    chown postgres "$scratch"
    as=(runuser -u postgres --)
fi
stop() { "${as[@]}" pg_ctl -D "$scratch/data" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$scratch"; }
trap stop EXIT

(cd "$scratch" && "${as[@]}" initdb -D "$scratch/data" -U headway --auth=trust --no-sync >/dev/null)
(cd "$scratch" && "${as[@]}" pg_ctl -D "$scratch/data" -w -l "$scratch/log" -o "-k $scratch -c listen_addresses='' -c fsync=off" start >/dev/null)
for migration in migrations/*.sql; do
    psql -q -v ON_ERROR_STOP=1 -h "$scratch" -U headway -d postgres -f "$migration"
done

export SQLX_OFFLINE=false SQLX_OFFLINE_DIR="$PWD/.sqlx"
export DATABASE_URL="postgres://headway@localhost/postgres?host=$scratch"
mkdir -p .sqlx
rm -f .sqlx/query-*.json
touch scheduler/src/lib.rs # the macros run only when the crate is compiled
cargo check --locked -p headway-scheduler "$@"
