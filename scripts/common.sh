# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts beside it: where the repository is, how a step is told, how a preset is built.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc 2>/dev/null || echo 2)

if [[ -t 2 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
  bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
  bold='' red='' green='' plain=''
fi

say() { printf '%s\n' "$*" >&2; }
step() { printf '%s==>%s %s\n' "$bold$green" "$plain" "$*" >&2; }

# die EXIT_CODE MESSAGE…: one line each.
die() {
  local code=$1
  shift
  printf '%serror:%s %s\n' "$bold$red" "$plain" "$1" >&2
  shift
  (($# == 0)) || printf '       %s\n' "$@" >&2
  exit "$code"
}

# logged LOG ADVICE COMMAND…: runs quietly; on failure shows the end of the log and says what to do.
logged() {
  local log=$1 advice=$2 status=0
  shift 2
  mkdir -p "$(dirname "$log")"
  printf '\n$ %s\n' "$*" >>"$log"
  "$@" >>"$log" 2>&1 </dev/null || status=$?
  ((status == 0)) && return 0
  say '' "--- the end of ${log#"$repo"/} ---"
  tail -n 40 "$log" >&2
  say '---'
  die "$status" "this failed with exit code $status: $(cut -c 1-90 <<<"$*")" "$advice" "the whole log: $log"
}

# configure PRESET LOG: does nothing when the build folder is up to date. Ninja itself sees a changed
# CMakeLists.txt; what it does not see is a changed preset.
configure() {
  local preset=$1 log=$2 ninja_file=$repo/build/$1/build.ninja
  [[ -e $ninja_file && $ninja_file -nt $repo/CMakePresets.json ]] && return 0
  logged "$log" "Fix what the log names; 'rm -rf build/$preset' starts it afresh." \
    cmake -S "$repo" --preset "$preset"
  touch "$ninja_file"
}

# build PRESET LOG [TARGET…]
build() {
  local preset=$1 log=$2
  shift 2
  configure "$preset" "$log"
  logged "$log" "Fix what the log names, then run this again: only the rest is built." \
    cmake --build "$repo/build/$preset" --parallel "$jobs" ${1:+--target "$@"}
}
