#!/usr/bin/env bash
# Builds what a container image of Tributary holds, and nothing else: one static program, without the simulator.
#
#   build.sh FOLDER     FOLDER/tributary, and FOLDER/etc with its user and the authorities that this machine believes
#
# The Containerfile runs it, and so may you, where static programs are wanted outside of containers. It needs Rust, a C
# compiler and xz. The program is linked with the C library of this machine: a glibc of 2.34 or later (older ones look for
# parts of themselves at run time when they resolve names), or musl where TARGET says so:
#
#   TARGET=x86_64-unknown-linux-musl build.sh FOLDER     after `rustup target add x86_64-unknown-linux-musl`
#
# PROFILE=dev builds faster and runs slower.
#
# The compiler is told what runs often by `profile/`, if that has a file for this compiler and this target: a request that
# is passed on takes a third less CPU then (bench/RESULTS.md). profile.sh makes that file anew. UNGUIDED=1 does without.
set -euo pipefail

folder=${1:?usage: build.sh FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

about_compiler() { rustc -vV | sed -n "s/^$1: //p"; }
target=${TARGET:-$(about_compiler host)}
profile=${PROFILE:-dist}
# Apart from the other builds: all is compiled anew for a static program. With --target the flags are not those of
# build scripts and macros, which are loaded by the compiler and cannot be static.
objects=${CARGO_TARGET_DIR:-target}/static
read -ra flags <<<"${RUSTFLAGS:-}"
flags+=(-C target-feature=+crt-static)

# By the name of the compiler and the target: what one has counted, another does not understand.
counted=deploy/container/profile/$(about_compiler release)-$target.profdata.xz
used=
if [ -n "${UNGUIDED:-}" ] || [ "$profile" != dist ] || [ ! -f "$counted" ]; then
  echo "build.sh: not guided by a profile, so the program is slower than it may be" >&2
else
  command -v xz >/dev/null || {
    echo "build.sh: xz is missing, which unpacks $counted: install xz-utils, or build with UNGUIDED=1" >&2
    exit 1
  }
  mkdir -p "$objects"
  # By its contents, so that what an earlier one has guided is compiled anew, and nothing else is.
  used=$(cd "$objects" && pwd)/$(sha256sum "$counted" | cut -c1-16).profdata
  [ -s "$used" ] || { xz --decompress --stdout "$counted" >"$used.$$" && mv "$used.$$" "$used"; }
  # Functions that have changed since are compiled as without it, which need not be told of each.
  flags+=(-C "profile-use=$used" -C llvm-args=-no-pgo-warn-mismatch)
  echo "build.sh: guided by $counted" >&2
fi
# A path among them may have blanks.
CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}") \
  cargo build --locked --package tributary-server --bin tributary --no-default-features \
  --target "$target" --target-dir "$objects" --profile "$profile"

built=$objects/$target/${profile/#dev/debug}/tributary
# The names of functions have the versions of their packages in them: what was counted of others guides nothing, and the
# compiler does not say so. Of 14,827 that were counted 6,914 were in the program for which they were counted (the others are
# inlined), and 15 in one of other features.
KNOWN_MIN=5000
if [ -n "$used" ]; then
  names() { grep -aoE '_(ZN|R)[A-Za-z0-9_.$]{6,}' | LC_ALL=C sort -u; }
  known=$(LC_ALL=C comm -12 <(names <"$used") <(nm "$built" | names) | wc -l)
  if [ "$known" -lt "$KNOWN_MIN" ]; then
    echo "build.sh: only $known functions of $counted are in the program: it is of other versions. Make it anew by" \
      "deploy/container/profile.sh, or build with UNGUIDED=1" >&2
    exit 1
  fi
fi
# A program that asks for an interpreter is not static.
if LC_ALL=C readelf --program-headers "$built" | grep -q INTERP; then
  echo "build.sh: $built needs a dynamic linker: $target does not link statically on this machine" >&2
  exit 1
fi
install -m 0755 "$built" "$folder/tributary"
strip --strip-debug "$folder/tributary"
mkdir -p "$folder/etc/ssl/certs"
# Who starts it by a number alone has a name all the same.
echo 'tributary:x:65532:65532:Tributary:/:/sbin/nologin' >"$folder/etc/passwd"
echo 'tributary:x:65532:' >"$folder/etc/group"
authorities=/etc/ssl/certs/ca-certificates.crt
if [ -f "$authorities" ]; then install -m 0644 "$authorities" "$folder$authorities"; fi
"$folder/tributary" --version
