# For the tests beside it. A fact is a function whose name begins with `fact_`; it holds if none of its lines fails. Each
# runs in an empty directory of its own.
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

run_facts() {
    local fact status failed=0 passed=0 scratch
    for fact in $(compgen -A function fact_); do
        scratch=$(mktemp -d)
        set +e # a condition around it would switch `set -e` off inside
        (
            set -e
            cd "$scratch"
            "$fact"
        ) >"$scratch.log" 2>&1
        status=$?
        set -e
        if [ $status = 0 ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "FAILED: $fact"
            cat "$scratch.log"
        fi
        rm -rf "$scratch" "$scratch.log"
    done
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ]
}
