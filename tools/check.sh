#!/usr/bin/env bash
# `make check`: rules of the house that a compiler does not enforce, the ptxas report of every kernel, and
# what the loss of each of the kernels' synchronisations does (a few minutes).
# Usage: tools/check.sh path/to/mxfa
set -uo pipefail
shopt -s lastpipe   # rule() at the end of a pipe sets `failed` of this shell
cd "$(dirname "$0")/.."
program=$1
failed=0

# rule "what is wrong" FILES... : reads offending lines from stdin.
rule() {
  local lines
  lines=$(cat)
  [ -z "$lines" ] && return 0
  echo "check: $1"
  echo "$lines" | sed 's/^/  /' | head -20
  failed=1
}

mapfile -t device < <(git ls-files 'ptx/*.cuh' 'src/*.cuh')
mapfile -t kernels < <(git ls-files 'src/*.cuh')
mapfile -t wrappers < <(git ls-files 'ptx/*.cuh')
mapfile -t emulator < <(git ls-files 'runtime/emulator/*.hpp' 'runtime/emulator/*.cpp')
mapfile -t host < <(git ls-files 'runtime/host/*' 'runtime/include/*' 'tools/*.cpp' 'tools/*.hpp')
mapfile -t code < <(git ls-files '*.hpp' '*.cpp' '*.h' '*.cuh' '*.sh' '*.cmake' '*CMakeLists.txt' Makefile)

grep -nE '\basm\b *(volatile)? *\(' "${kernels[@]}" "${host[@]}" "${emulator[@]}" |
  rule 'inline PTX outside ptx/'
grep -nE '^ *# *include' "${kernels[@]}" | grep -vE '"(ptx|src)/[a-z0-9_/]+\.cuh"' |
  rule 'src/ includes only "ptx/..." and "src/...", so that NVRTC alone compiles it'
grep -nE '^ *# *include' "${wrappers[@]}" | grep -vE '"ptx/[a-z0-9_/]+\.cuh"' |
  rule 'ptx/ includes only "ptx/..."'
grep -nE '^ *# *include *"((src|host|mxfa|tools|reference)/|[^"]*\.cuh")' "${emulator[@]}" |
  rule 'the CPU driver includes nothing of the kernels or the runtime'
grep -nE '^ *# *include *"((emulator|tools|src)/|[^"]*\.cuh")' $(git ls-files 'runtime/host/*') |
  rule 'the runtime includes no device header and nothing of the CPU driver'
LC_ALL=C grep -nP '[^\x00-\x7F]' "${device[@]}" | rule 'a character that is not ASCII in device code'
LC_ALL=C.UTF-8 grep -nE '^.{111,}' "${code[@]}" | cut -c1-100 | rule 'a line of more than 110 columns'
grep -nE '\b(TODO|FIXME|XXX)\b' "${code[@]}" | grep -v '^tools/check.sh:' |
  rule 'unfinished work left in the code'
grep -nP '\t' $(git ls-files '*.hpp' '*.cpp' '*.h' '*.cuh' '*.sh') | rule 'a tab'
wc -l "${code[@]}" | awk '$1 > 600 && $2 != "total" {print $2 ": " $1 " lines"}' |
  rule 'a file of more than 600 lines'

# Every kernel in every configuration, and those of the shape files: no spills, no ignored setmaxnreg.
build=$(dirname "$program")/..
export MXFA_CACHE_DIR=$build/lib/test_kernel_cache   # of the tests, not the user's
# With a disassembler, which registers the warps of a kernel use as well.
if [ -z "${MXFA_NVDISASM:-}" ] && command -v nvdisasm >/dev/null; then export MXFA_NVDISASM=nvdisasm; fi
"$build/bin/mxfa_test_runtime" '[every_kernel]' || failed=1
compiles() {  # DEVICE SHAPES...
  local on=$1 shape
  shift
  for shape in "$@"; do
    "$program" compile "$shape" --device "$on" --strict --quiet || { echo "check: $shape on $on"; failed=1; }
  done
}
compiles emulator:b200 configs/shapes/{cross,masks,pair,quantize,quickstart}.json
compiles emulator:gb300 configs/shapes/{cross,masks,pair}.json
compiles emulator:h200 configs/shapes/{cross,masks,backward,backward_mxfp8,quantize}.json

# Every synchronisation deleted in turn: found, or known.json says why not.  --strict where the kernel keeps
# the letter of the PTX ISA.
mutates() {  # DEVICE OPTIONS... -- SHAPES...
  local device=$1 options=() out messages
  shift
  while [ "$1" != -- ]; do options+=("$1"); shift; done
  shift
  messages=$(mktemp)
  out=$("$program" check "${@/#/tests/data/mutate/}" --device "$device" "${options[@]}" --schedules 2 \
        --mutate --all-kernels --quiet --known tests/data/mutate/known.json 2>"$messages") || {
    grep -E '^  silent: | found, ' <<<"$out"
    echo "check: $*: a deleted synchronisation is not found"
    failed=1
  }
  grep 'no silent deletion is' "$messages" | rule 'tests/data/mutate/known.json excuses what is found'
  rm -f "$messages"
}
mutates emulator:b200 --strict -- sm100.json sm100_pair.json sm100_clc.json quantize.json lengths.json
mutates emulator:h200 --strict -- sm90_bwd.json sm90_bwd_turns.json
mutates emulator:h200 -- sm90.json sm90_bwd_split.json

# The options of the Blackwell forward against each other, each row under random schedules and orders of
# grants.
covers() {  # DEVICE SEEDS
  MXFA_TEST_DEVICE=$1 MXFA_COVERING_SEEDS=$2 "$build/bin/mxfa_test_kernels" '[covering]' ||
    { echo "check: the covering array of attention_fwd_sm100 on $1"; failed=1; }
}
covers emulator:b200 20
covers emulator:gb300 1

[ $failed -eq 0 ] && echo 'check: all rules kept, no kernel spills, no synchronisation lost in silence'
exit $failed
