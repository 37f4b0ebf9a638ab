#!/usr/bin/env bash
# Counts anew what of the program runs how often, for build.sh: builds it so that it counts, asks it by the load program of
# bench/, and writes profile/COMPILER-TARGET.profdata.xz. That is due when the compiler of rust-toolchain.toml is another
# one, when the version or Cargo.lock has changed (functions have other names then), and after a change of what answers
# requests; so before a release, and behind all else. It takes 30 minutes on two cores.
#
# It needs what the end-to-end tests need (`make tools`), util-linux, xz, and llvm-profdata of the compiler's own LLVM
# (`rustup component add llvm-tools`), or one that reads the same format and is named by LLVM_PROFDATA.
#
#   WANTED=gateway-get profile.sh    asks for a part alone, for a first look
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# What is asked: requests that are passed on, for one person and for many users, with policies and without, lists and watches
# that are, and both from memory.
wanted=${WANTED:-gateway-get,gateway-list,gateway-watch,namespace-100,list-all,watch-100}

about_compiler() { rustc -vV | sed -n "s/^$1: //p"; }
host=$(about_compiler host)
profdata=${LLVM_PROFDATA:-$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata}
"$profdata" merge --help >/dev/null || {
  echo "profile.sh: there is no llvm-profdata: rustup component add llvm-tools, or name one by LLVM_PROFDATA" >&2
  exit 1
}
for program in setsid setpriv xz; do
  command -v "$program" >/dev/null || { echo "profile.sh: $program is missing" >&2; exit 1; }
done

# Whoever starts the program is in another folder.
mkdir -p "${CARGO_TARGET_DIR:=target}"
CARGO_TARGET_DIR=$(cd "$CARGO_TARGET_DIR" && pwd)
export CARGO_TARGET_DIR
folder=$CARGO_TARGET_DIR/profile
counts=$folder/counts
rm -rf "$counts"
mkdir -p "$counts"
# The very program that build.sh makes for this machine, or its functions have other names. It is asked for its version in the
# end, which is nothing to count.
TARGET=$host PROFILE=dist UNGUIDED=1 RUSTFLAGS="-C profile-generate" LLVM_PROFILE_FILE=$folder/version.profraw \
  CARGO_TARGET_DIR=$folder deploy/container/build.sh "$folder/image"
cargo build --profile dist --locked -p tributary-bench

# A program writes what it has counted at a proper end, and the load program ends process groups at once. So it is in a
# session of its own, and is told to end when this script, which the load program takes for it, is gone.
cat >"$folder/counting" <<SCRIPT
#!/bin/sh
LLVM_PROFILE_FILE='$counts/%p.profraw' setsid setpriv --pdeathsig TERM '$folder/image/tributary' "\$@" &
echo \$! >'$counts/'\$!.pid
wait
SCRIPT
chmod +x "$folder/counting"
TRIBUTARY_BIN=$folder/counting "$CARGO_TARGET_DIR/dist/tributary-bench" --pods 1000 --seconds 1 --watch-seconds 4 \
  --only "$wanted" --json "$folder/results.json"
# Whoever drains has ten seconds for it.
for pid in "$counts"/*.pid; do
  process=$(<"$pid")
  for _ in $(seq 30); do
    [ -d "/proc/$process" ] || break
    sleep 1
  done
  [ -s "$counts/$process.profraw" ] || { echo "profile.sh: process $process has not written what it counted" >&2; exit 1; }
done

made=deploy/container/profile/$(about_compiler release)-$host.profdata
mkdir -p deploy/container/profile
# Without what never ran: that is most of it.
"$profdata" merge --sparse --output "$made" "$counts"/*.profraw
xz -9 --extreme --force "$made"
ls -l "$made.xz"
