#!/usr/bin/env bash
# Runs the tests that are too long for continuous integration. `make proof` runs all parts, or the parts in PROOF.
#
#   proof.sh [property] [model] [fleet] [specs] [reads] [bookmarks] [silence] [oracle] [authorization]
#            [races] [rights] [behind] [faults] [clients] [container] [upgrade] [day] [hub] [fuzz]
#
# Each part writes one row of ../PROOF.md: day, commit, command, result and duration. Rows of parts that did not run stay.
# New rows are appended to the file, so the table must be its last element.
#
# These variables change the length of the runs: PROPTEST_CASES, TRIBUTARY_CHANGES, TRIBUTARY_SEEDS, TRIBUTARY_DAY_MINUTES
# and FUZZ_SECONDS (for each target). TRIBUTARY_UPGRADE_FROM is the earlier revision of the upgrade test: by default the
# last tag, or the first revision that supports rolling updates.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export PROPTEST_CASES=${PROPTEST_CASES:-10000} TRIBUTARY_CHANGES=${TRIBUTARY_CHANGES:-100000} TRIBUTARY_SEEDS=${TRIBUTARY_SEEDS:-20000}
# Seed and number of the generated access reviews.
export TRIBUTARY_AUTHORIZATION=${TRIBUTARY_AUTHORIZATION:-7:4000}
export TRIBUTARY_SPECS_RESULTS=$PWD/e2e/specs/RESULTS.md
# Length of the part `day` in minutes.
export TRIBUTARY_DAY_MINUTES=${TRIBUTARY_DAY_MINUTES:-30}
upgrade_from=$(git rev-parse --short "${TRIBUTARY_UPGRADE_FROM:-$(git describe --tags --abbrev=0 2>/dev/null || echo 33ec093a)}^{commit}")
fuzz_seconds=${FUZZ_SECONDS:-120}
# The folder with an existing build of deploy/container/build.sh, as an absolute path: the tests run in another folder.
static=
if [ -n "${TRIBUTARY_STATIC:-}" ]; then
  static="TRIBUTARY_STATIC=$(basename "$TRIBUTARY_STATIC") "
  TRIBUTARY_STATIC=$(cd "$TRIBUTARY_STATIC" && pwd) || exit 2
  export TRIBUTARY_STATIC
fi
result=PROOF.md
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

[ -f "$result" ] || printf '%s\n' '# Proof' '' \
  'What `make proof` found, part by part: the last run of each, and nothing of later commits. A part of `e2e/proof.sh` without a line has not run. `e2e/specs/RESULTS.md` has the specs one by one.' '' \
  '| part | day | commit | command | result | s |' '|---|---|---|---|---|---|' >"$result"

# part NAME SHOWN COMMAND...: runs the command, and replaces the part's row of the table. SHOWN is the command in the row.
part() {
  local name=$1 shown=$2 started=$SECONDS outcome
  shift 2
  echo "=== $name: $shown"
  if "$@" 2>&1 | tee "$log"; then outcome=passed; else outcome='**failed**' failed=1; fi
  local count
  count=$(grep -oE '[0-9]+ passed' "$log" | awk '{ sum += $1 } END { if (sum) print sum " passed" }')
  # The row has the number of passed tests, if there is one, and always tells a failure.
  local shown_result=${count:-$outcome}
  [ "$outcome" = passed ] || shown_result="${count:+$count, }$outcome"
  local line="| $name | $(date -u +%F) | $(git rev-parse --short HEAD) | \`$shown\` | $shown_result | $((SECONDS - started)) |"
  # Matches the first column, because a command may contain a part's name, too.
  grep -v "^| $name |" "$result" >"$result.new"
  echo "$line" >>"$result.new"
  mv "$result.new" "$result"
}

# Runs long tests of the router with optimised workspace crates. All other crates are built as for the other tests.
quick() {
  local crate quick=()
  for crate in apimachinery cacher merge printers proxy router simulator; do
    quick+=(--config "profile.dev.package.tributary-$crate.opt-level=2")
  done
  cargo "${quick[@]}" test --workspace --locked --test "$1" -- --ignored "$2"
}

# Fuzzes without sanitizers, which need a nightly compiler. The code has no `unsafe`, and the targets check properties.
fuzz() {
  local target fallen=0
  command -v cargo-fuzz >/dev/null || cargo install --locked --quiet cargo-fuzz@0.13.2 || return 1
  for target in $(cd fuzz && cargo fuzz list); do
    echo "--- $target"
    # New inputs go into the first folder, outside of git. The second folder has the committed inputs.
    mkdir -p "fuzz/target/corpus/$target" "fuzz/corpus/$target"
    (cd fuzz && cargo fuzz run --sanitizer none "$target" "target/corpus/$target" "corpus/$target" -- \
      -max_total_time="$fuzz_seconds" -print_final_stats=1) || fallen=1
  done
  # A failed target does not stop the other targets.
  return "$fallen"
}

# Runs the ignored e2e tests whose names contain one of these filters.
e2e() {
  local filter
  for filter; do cargo test --workspace --locked --test e2e -- --ignored "$filter" || return 1; done
}

# Builds the earlier revision and runs the upgrade test. `git archive` gives the sources, because a git worktree would stay
# registered after an interruption. All earlier revisions share one target folder, so their dependencies are built once.
upgrade() {
  local sources=$PWD/target/upgrade/$upgrade_from builds=$PWD/target/upgrade/target
  local program=$sources.tributary
  if [ ! -x "$program" ]; then
    mkdir -p "$sources" && git archive "$upgrade_from" | tar -xm -C "$sources" || return 1
    (cd "$sources" && CARGO_TARGET_DIR=$builds cargo build --workspace --bin tributary --locked) || return 1
    cp "$builds/debug/tributary" "$program" || return 1
  fi
  TRIBUTARY_UPGRADE_FROM_BIN=$program cargo test --workspace --locked --test e2e -- --ignored --nocapture deployment::upgrade::proof
}

# Runs the part `day`, whose output has a line for each minute.
day() { cargo test --workspace --locked --test e2e -- --ignored --nocapture day::proof; }

all=(property model fleet specs reads bookmarks silence oracle authorization races rights behind faults clients container upgrade day hub fuzz)
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=("${all[@]}")
# Checks the names before the build, which takes minutes.
for name in "${parts[@]}"; do
  [[ " ${all[*]} " == *" $name "* ]] || { echo "no such part: $name; there are: ${all[*]}" >&2; exit 2; }
done
# Builds all tests, and the program `tributary`, because the crate `server` has tests.
cargo test --workspace --no-run --locked || exit 1
for name in "${parts[@]}"; do
  case $name in
    property) part property "PROPTEST_CASES=$PROPTEST_CASES TRIBUTARY_CHANGES=$TRIBUTARY_CHANGES cargo test -p tributary-merge -p tributary-policy -p tributary-fuzz-properties" cargo test -p tributary-merge -p tributary-policy -p tributary-fuzz-properties --locked ;;
    model) part model "TRIBUTARY_SEEDS=$TRIBUTARY_SEEDS cargo test --test model -- --ignored proof" quick model proof ;;
    fleet) part fleet 'cargo test --test simulated -- --ignored fleet::proof' quick simulated fleet::proof ;;
    specs) part specs 'cargo test --test e2e -- --ignored proof_specs' e2e proof_specs ;;
    reads) part reads 'cargo test --test e2e -- --ignored differential::proof' e2e differential::proof ;;
    bookmarks) part bookmarks 'cargo test --test e2e -- --ignored bookmarks::proof' e2e bookmarks::proof ;;
    silence) part silence 'cargo test --test e2e -- --ignored silent_members::proof' e2e silent_members::proof ;;
    oracle) part oracle 'cargo test --test e2e -- --ignored oracle::proof' e2e oracle::proof ;;
    authorization) part authorization "TRIBUTARY_AUTHORIZATION=$TRIBUTARY_AUTHORIZATION cargo test --test e2e -- --ignored authorization::proof" e2e authorization::proof ;;
    races) part races 'cargo test --test e2e -- --ignored shared_mode::races::proof' e2e shared_mode::races::proof ;;
    rights) part rights 'cargo test --test e2e -- --ignored shared_mode::churn::proof; … shared_mode::matrix::proof; … shared_mode::tokens::proof' e2e shared_mode::churn::proof shared_mode::matrix::proof shared_mode::tokens::proof ;;
    behind) part behind 'cargo test --test e2e -- --ignored shared_mode::stale_rights::proof' e2e shared_mode::stale_rights::proof ;;
    faults) part faults 'cargo test --test serve -- --ignored' cargo test --workspace --locked --test serve -- --ignored ;;
    clients) part clients 'cargo test --test listener -- --ignored many_clients' cargo test --workspace --locked --test listener -- --ignored many_clients ;;
    container) part container "${static}cargo test --test e2e -- --ignored deployment::container::proof" e2e deployment::container::proof ;;
    upgrade) part upgrade "TRIBUTARY_UPGRADE_FROM=$upgrade_from cargo test --test e2e -- --ignored deployment::upgrade::proof" upgrade ;;
    hub) part hub 'cargo test --test e2e -- --ignored hub::outages::proof; … hub::figures::proof' e2e hub::outages::proof hub::figures::proof ;;
    day) part day "TRIBUTARY_DAY_MINUTES=$TRIBUTARY_DAY_MINUTES cargo test --test e2e -- --ignored day::proof" day ;;
    fuzz) part fuzz "cargo fuzz run, $fuzz_seconds s each" fuzz ;;
  esac
done
exit "$failed"
