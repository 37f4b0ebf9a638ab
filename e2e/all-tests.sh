#!/usr/bin/env bash
# Runs all tests of the workspace. The e2e tests run concurrently with all other tests: they wait more than they compute,
# and take longer than all other tests together. Their output is printed at the end. Fails if any test fails.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# cargo calls this script as the runner of each test program. The e2e program already runs, so it is skipped.
if [ "${1:-}" = --runner ]; then
  shift
  case ${1##*/} in
    e2e-*) echo "these run beside the others, and are told of at the end" ;;
    *) exec "$@" ;;
  esac
  exit
fi

servers=$(mktemp)
trap 'rm -f "$servers"' EXIT
# Builds all programs first, so that neither of the two cargo processes waits for the build of the other. This includes
# the program `tributary`, because the crate `server` has tests.
cargo test --workspace --locked --no-run || exit

cargo test --workspace --locked --test e2e -- "$@" >"$servers" 2>&1 &
beside=$!
trap 'kill "$beside" 2>/dev/null; rm -f "$servers"' EXIT
cargo test --workspace --locked --no-fail-fast --config "target.'cfg(all())'.runner = ['$PWD/e2e/all-tests.sh', '--runner']" -- "$@"
others=$?
wait "$beside"
with_servers=$?
cat "$servers"
[ "$others" -eq 0 ] && [ "$with_servers" -eq 0 ]
