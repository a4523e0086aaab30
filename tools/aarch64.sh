#!/usr/bin/env bash
# The same bits on 64-bit ARM, tested on an x86-64 machine: builds for aarch64, runs the tests of bits and golden files
# under qemu-aarch64, and compares a trained model, its samples, its evaluation and compressed files with this machine's.
#
#   tools/aarch64.sh
#
# Needs:
#   rustup target add aarch64-unknown-linux-gnu
#   apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user     (names of Debian's packages)
#
# Ends in a table; the exit code is 1 when a test failed, when a row ran no test, when a byte differs, or when the compiler
# did not make NEON instructions of the kernels. Most of its time is building.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=never

TRIPLE=aarch64-unknown-linux-gnu
ROOT=/usr/aarch64-linux-gnu
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")
PLACE=$TARGET/aarch64-check
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L $ROOT"

# Package, which of its test programs, and which of their tests; none means all.
TESTS=(
    "rrvq-tensor --lib lanes:: math:: gemm:: conv:: responsibility::tests"
    "rrvq --test bits"
    "rrvq --test golden"
    "rrvq-cli --test bits"
    "rrvq-cli --test codec golden"
    "rrvq-cli --test lossy golden every_built_in_model"
)

need() {
    local missing=()
    command -v qemu-aarch64 >/dev/null || missing+=("qemu-aarch64 (Debian: qemu-user)")
    command -v aarch64-linux-gnu-gcc >/dev/null || missing+=("aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu)")
    [ -e "$ROOT/lib/ld-linux-aarch64.so.1" ] || missing+=("the C library in $ROOT (Debian: libc6-dev-arm64-cross)")
    [ -d "$(rustc --print target-libdir --target $TRIPLE)" ] || missing+=("rustup target add $TRIPLE")
    [ ${#missing[@]} -eq 0 ] && return
    printf 'missing: %s\n' "${missing[@]}" >&2
    exit 2
}

# Tests of the program start it as a process of its own, which qemu does not follow; RRVQ_CHECK names a folder whose
# `rrvq` does.
wrap() {
    rm -rf "$PLACE"
    mkdir -p "$PLACE/logs" "$PLACE/scratch"
    printf '#!/bin/sh\nexec qemu-aarch64 -L %s %s/%s/release/rrvq "$@"\n' "$ROOT" "$TARGET" "$TRIPLE" >"$PLACE/rrvq"
    chmod +x "$PLACE/rrvq"
}

rows=() bad=0
row() {
    [ "$3" = passed ] || bad=$((bad + 1))
    rows+=("$(printf '%-72s %6ss  %s' "$1" "$2" "$3")")
}

tests() {
    local line package which name filters begun passed verdict
    for line in "${TESTS[@]}"; do
        local log=$PLACE/logs/${#rows[@]}.txt
        read -r package which name <<<"$line"
        local target=("$which")
        filters=$name
        [ "$which" = --test ] && { read -r name filters <<<"$name"; target+=("$name"); }
        printf '\n== %s\n' "$line"
        begun=$SECONDS verdict=passed
        # shellcheck disable=SC2086 # filters are words
        RRVQ_CHECK=$PLACE cargo test --release --target $TRIPLE -p "$package" "${target[@]}" -- $filters 2>&1 |
            tee "$log" | grep -v '^ *Compiling' || verdict=FAILED
        passed=$(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' "$log")
        # A program that runs no test has checked nothing.
        [ "$verdict" = passed ] && [ "${passed:-0}" = 0 ] && verdict=EMPTY
        row "$line: ${passed:-0} passed" "$((SECONDS - begun))" "$verdict"
    done
}

# Ten steps, samples, an evaluation, and an image that the built-in model codes, by the program $1, in the folder $2.
results() {
    local rrvq=$1 photo=$PWD/crates/cli/tests/golden-codec/built-in/tiles-2.png
    mkdir -p "$2"
    (
        cd "$2"
        "$rrvq" train --preset tiny-swatches --steps 10 --out run
        "$rrvq" sample run --count 9 --out samples.png
        "$rrvq" eval run --json --samples 2 | sed 's/"seconds":[^,}]*,//' >eval.json
        "$rrvq" compress "$photo" -o photo.rrvq
        "$rrvq" compress "$photo" -o lossy.rrvq --lossy
    ) >"$2.txt" 2>&1
}

compare() {
    local begun=$SECONDS file verdict
    printf '\n== the program, there and here\n'
    results "$PLACE/rrvq" "$PLACE/scratch/there" || { cat "$PLACE/scratch/there.txt" >&2; exit 1; }
    results "$TARGET/release/rrvq" "$PLACE/scratch/here" || { cat "$PLACE/scratch/here.txt" >&2; exit 1; }
    for file in run/model.safetensors samples.png eval.json photo.rrvq lossy.rrvq; do
        verdict=passed
        cmp "$PLACE/scratch/there/$file" "$PLACE/scratch/here/$file" || verdict=DIFFERS
        row "$file, written on both: $(stat -c %s "$PLACE/scratch/here/$file") bytes" "$((SECONDS - begun))" "$verdict"
    done
}

# Which instructions the compiler made of the kernels' arrays of sixteen floats.
instructions() {
    local program=$TARGET/$TRIPLE/release/rrvq code=$PLACE/instructions.txt vector scalar verdict=passed
    aarch64-linux-gnu-objdump -d --no-show-raw-insn "$program" >"$code"
    vector=$(grep -cE '\sfmla\s+v[0-9]+\.4s' "$code" || true)
    scalar=$(grep -cE '\sfmadd\s+s' "$code" || true)
    rm "$code"
    [ "$vector" -gt "$scalar" ] || verdict=SLOW
    # Without an instruction for it, a multiply-add would be a call of this function.
    if aarch64-linux-gnu-nm "$program" | grep ' fmaf' >/dev/null; then verdict=SLOW; fi
    row "fused multiply-adds: $vector NEON, $scalar scalar" 0 "$verdict"
}

need
wrap
cargo build --release -p rrvq-cli
cargo build --release -p rrvq-cli --target $TRIPLE
file -b "$TARGET/$TRIPLE/release/rrvq" 2>/dev/null | cut -d, -f1-2 || true
instructions
tests
compare
printf '\n'
printf '%s\n' "${rows[@]}"
if [ "$bad" -gt 0 ]; then
    printf '%d of %d rows did not pass; logs are in %s\n' "$bad" "${#rows[@]}" "$PLACE/logs"
    exit 1
fi
printf 'all passed\n'
