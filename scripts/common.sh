# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts beside it: where the repository is, how a step is reported, how a preset is built.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc 2>/dev/null || echo 2)

if [[ -t 2 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
  bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
  bold='' red='' green='' plain=''
fi

say() { printf '%s\n' "$*" >&2; }
# On a terminal a line may be written over.
in_place() { [[ -t 2 && ${TERM:-dumb} != dumb ]]; }
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

steps_period=30 # seconds between two lines of print_steps, where there is no terminal

# print_steps LOG FROM: how far ninja is, by its lines in LOG from byte FROM on, until it is killed:
# in place on a terminal, else a line every `steps_period` seconds.
print_steps() {
  local log=$1 from=$2 started=$SECONDS printed=$SECONDS at tick
  exec {tick}<> <(:) # nothing is ever to be read: a sleep without a process
  while kill -0 "$$" 2>/dev/null; do
    read -rt 1 -u "$tick" || true
    at=$(tail -c "+$((from + 1))" "$log" | grep -oE '^\[[0-9]+/[0-9]+\]' | tail -n 1) || true
    [[ -n $at ]] || continue
    if in_place; then
      printf '\r\e[K    %s  %d:%02d' "$at" $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60)) >&2
    elif ((SECONDS - printed >= steps_period)); then
      printed=$SECONDS
      say "    $at after $((SECONDS - started)) s"
    fi
  done
}

# logged LOG ADVICE COMMAND…: runs quietly; on failure shows the end of the log and says what to do.
# With `progress` set to a function, that one runs beside the command, with LOG and its size.
logged() {
  local log=$1 advice=$2 status=0 watcher=
  shift 2
  mkdir -p "$(dirname "$log")"
  printf '\n$ %s\n' "$*" >>"$log"
  if [[ -n ${progress:-} ]]; then
    "$progress" "$log" "$(stat -c %s "$log")" &
    watcher=$!
  fi
  "$@" >>"$log" 2>&1 </dev/null || status=$?
  if [[ -n $watcher ]]; then
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    ! in_place || printf '\r\e[K' >&2
  fi
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
  NINJA_STATUS='[%f/%t] ' progress=print_steps \
    logged "$log" "Fix what the log names, then run this again: only the rest is built." \
    cmake --build "$repo/build/$preset" --parallel "$jobs" ${1:+--target "$@"}
}

# For a test that takes too long for every run of CI. Given --if-changed, it ends here with success if it has passed with
# the same files, of which STAMP has the digest; note_pass writes that.
skip_if_unchanged() { # ARGUMENT STAMP FILE…
  local argument=$1 stamp=$2
  shift 2
  [[ -z $argument || $argument == --if-changed ]] ||
    die 2 "unknown argument '$argument'" "usage: ${0#"$repo"/} [--if-changed]"
  if [[ -n $argument && $(digest_of_files "$@") == "$(cat "$stamp" 2>/dev/null)" ]]; then
    say "${0#"$repo"/} has passed with the files that decide its result: ${stamp#"$repo"/}"
    exit 0
  fi
}
note_pass() { # STAMP FILE…
  digest_of_files "${@:2}" >"$1"
}
digest_of_files() {
  git -C "$repo" ls-files -z -- "$@" | (cd "$repo" && xargs -0 sha256sum) | sha256sum | cut -d ' ' -f 1
}

# The package mirror that /etc/apt names, or the one of security updates.
debian_mirror() { # [security]
  local mirrors
  mirrors=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages')
  if (($#)); then grep security <<<"$mirrors"; else grep -v security <<<"$mirrors"; fi | head -n 1
}
