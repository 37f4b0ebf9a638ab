#!/usr/bin/env bash
# All tests of the workspace. Those against real servers run beside the others: they wait more than they compute, and take longer than all
# others together. Their output comes whole, after that of the others. Fails if either does.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# How cargo runs each test program of the others: those against real servers are under way already.
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
# Built before, so that neither waits for the other's build. The program that both start is among it, as the server's
# tests are.
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
