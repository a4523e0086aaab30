#!/usr/bin/env bash
# Every test that has something to say on a machine with a GPU.
#
#   tools/gpu-check.sh                  builds into target/gpu-check, then runs
#   tools/gpu-check.sh --build FOLDER   builds only: test programs, the program itself, and this script
#   FOLDER/gpu-check.sh --run FOLDER    runs what was built, on a machine without Rust
#   FOLDER/gpu-check.sh --long FOLDER CIFAR10
#                                       runs what takes minutes and real images: bf16 against f32 over 2,000 steps,
#                                       five minutes of the 32 layers; logs of the runs go to FOLDER/logs
#
# Running needs bash and what `rrvq doctor` asks for. It ends in a summary, and with exit code 1 when a test failed or
# was skipped that needs nothing but a GPU, or when there is no GPU.
set -euo pipefail
export CARGO_TERM_COLOR=never

# Package, the kind of target, its name, and which of its tests to run.
TARGETS=(
    "rrvq-tensor lib rrvq-tensor cuda"
    "rrvq-tensor test cuda"
    "rrvq test kernels"
    "rrvq test cuda"
    "rrvq-cli test cuda"
    "rrvq-cli test cuda_long"
)

usage() {
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

build() {
    local folder=$1 target package kind name filter said program
    cd "$(dirname "${BASH_SOURCE[0]}")/.."
    mkdir -p "$folder"
    rm -f "$folder"/check-* "$folder/filters"
    for target in "${TARGETS[@]}"; do
        read -r package kind name filter <<<"$target"
        printf 'building %s, %s %s\n' "$package" "$kind" "$name"
        local which=(--lib)
        [ "$kind" = test ] && which=(--test "$name")
        said=$(cargo test --release --no-run --features cuda -p "$package" "${which[@]}" 2>&1) || {
            printf '%s\n' "$said" >&2
            exit 1
        }
        # "  Executable tests/cuda.rs (target/release/deps/cuda-0123456789abcdef)"
        program=$(printf '%s\n' "$said" | sed -n 's/^ *Executable .* (\(.*\))$/\1/p' | tail -n 1)
        if [ -z "$program" ]; then
            printf 'cargo did not say where it put %s %s:\n%s\n' "$package" "$name" "$said" >&2
            exit 1
        fi
        cp "$program" "$folder/check-$package-$kind-$name"
        printf '%s %s\n' "check-$package-$kind-$name" "$filter" >>"$folder/filters"
    done
    printf 'building the program\n'
    said=$(cargo build --release -p rrvq-cli 2>&1) || {
        printf '%s\n' "$said" >&2
        exit 1
    }
    cp "${CARGO_TARGET_DIR:-target}/release/rrvq" "$folder/rrvq"
    cp tools/gpu-check.sh "$folder/"
    printf 'built: %s, %s\n' "$folder" "$(du -sh "$folder" | cut -f1)"
}

run() {
    local folder name filter log passed failed skipped begun bad=0 rows=()
    folder=$(cd "$1" && pwd)
    if [ ! -f "$folder/filters" ]; then
        printf '%s has nothing built; run gpu-check.sh --build on it first\n' "$1" >&2
        exit 2
    fi
    export RRVQ_CHECK=$folder
    mkdir -p "$folder/logs" "$folder/scratch"
    "$folder/rrvq" doctor | tee "$folder/logs/doctor.txt"
    if ! tail -n 1 "$folder/logs/doctor.txt" | grep -q 'cuda is ready'; then
        printf '\nthere is no GPU to check: see the last line above\n' >&2
        exit 1
    fi
    while read -r name filter; do
        log=$folder/logs/$name.txt
        printf '\n== %s %s\n' "$name" "$filter"
        begun=$SECONDS
        # One test at a time: they time kernels and measure memory.
        local verdict=passed
        (cd "$folder/scratch" && "$folder/$name" --test-threads 1 --nocapture ${filter:+"$filter"}) \
            >"$log" 2>&1 </dev/null || verdict=FAILED
        passed=$(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' "$log")
        failed=$(sed -n 's/^test result: .* \([0-9]*\) failed.*/\1/p' "$log")
        skipped=$(grep -cw skipped "$log" || true)
        if [ "$verdict" = FAILED ]; then
            bad=$((bad + 1))
            tail -n 60 "$log"
        elif [ "${passed:-0}" = 0 ]; then
            # A program that runs no test has checked nothing.
            bad=$((bad + 1))
            verdict=EMPTY
        elif [ "$skipped" -gt 0 ] && [[ $name != *-lib-* ]]; then
            # The doctor found everything, so that these have no reason to. Tests of the library itself may: some are
            # about machines where something is missing.
            bad=$((bad + 1))
            verdict=SKIPPED
        fi
        grep -w skipped "$log" || true
        rows+=("$(printf '%-36s %7s %7s %7s %6ss  %s' "$name" "${passed:-?}" "${failed:-?}" "$skipped" \
            "$((SECONDS - begun))" "$verdict")")
    done <"$folder/filters"
    printf '\n%-36s %7s %7s %7s %7s\n' "" passed failed skipped time
    printf '%s\n' "${rows[@]}"
    if [ "$bad" -gt 0 ]; then
        printf '%d of %d test programs did not pass; logs are in %s\n' "$bad" "${#rows[@]}" "$folder/logs"
        exit 1
    fi
    printf 'all passed\n'
}

long() {
    local folder
    folder=$(cd "$1" && pwd)
    mkdir -p "$folder/logs" "$folder/scratch"
    RRVQ_CIFAR10=$(cd "$2" && pwd) && export RRVQ_CIFAR10
    export RRVQ_CHECK=$folder RRVQ_KEEP=$folder/logs
    "$folder/check-rrvq-cli-test-cuda_long" --ignored --test-threads 1 --nocapture
}

absolute() {
    mkdir -p "$1" && (cd "$1" && pwd)
}

case "${1:-}" in
    "")
        folder=$(absolute "$(dirname "${BASH_SOURCE[0]}")/../target/gpu-check")
        (build "$folder")
        run "$folder"
        ;;
    --build) [ $# -eq 2 ] || usage; build "$(absolute "$2")" ;;
    --run) [ $# -eq 2 ] || usage; run "$2" ;;
    --long) [ $# -eq 3 ] || usage; long "$2" "$3" ;;
    *) usage ;;
esac
