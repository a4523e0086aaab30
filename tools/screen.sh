#!/usr/bin/env bash
# Screens: short trainings that differ in a few settings, several at a time on one GPU, and one row of a table for each.
# Every run holds out a tenth of the training images and is judged by these; the learning rate falls to zero along a
# cosine within its steps. A row is added when its run ends, so that nothing is lost when the screen is stopped; runs
# that have ended well are not made again.
set -u

usage() {
    cat <<'TEXT'
usage: tools/screen.sh --list FILE [--rrvq PROGRAM] [--data DIR] [--out DIR] [--steps N] [--jobs N] [--preset NAME]
                       [--flags "FLAGS"]
       tools/screen.sh --table DIR

  --list FILE     a run a line: NAME | FLAGS of `rrvq train`, such as: tau2 | --set model.temperature={start=2,end=2}
                  empty lines and lines that begin with # are left out
  --rrvq PROGRAM  the program [default: rrvq]
  --data DIR      folder of the data set
  --out DIR       where runs and results.md go [default: screen]
  --steps N       steps of each run [default: 4000]
  --jobs N        runs at a time [default: 3]
  --preset NAME   what all runs start from [default: l16-cifar10, with the mixture likelihood]
  --flags FLAGS   flags of all runs, such as "--device cuda --set train.batch=128"
  --table DIR     only prints the rows of a screen, unfinished runs by their newest record
TEXT
}

fail() {
    echo "screen.sh: $1" >&2
    exit 2
}

list='' rrvq=rrvq data='' out=screen steps=4000 jobs=3 preset='' flags='' table=''
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage && exit 0 ;;
    --list | --rrvq | --data | --out | --steps | --jobs | --preset | --flags | --table)
        [ $# -gt 1 ] || fail "$1 needs a value"
        declare "${1#--}=$2"
        shift 2
        ;;
    *) fail "there is no option $1; --help lists them" ;;
    esac
done

header='| run | steps | seconds | bits/dim | reconstruction | KL | live codes | perplexity, bottom to top | flags |
|---|---|---|---|---|---|---|---|---|'

# A run's row, from the newest record that tells of codes: the evaluation at its end, or an early one.
row() { # NAME FLAGS DIR NOTE
    local log=$3/log.jsonl record seconds
    record=$(grep -E '^\{"kind":"(eval|early)"' "$log" 2>/dev/null | tail -n 1)
    seconds=$(grep '^{"kind":"train"' "$log" 2>/dev/null | tail -n 1 | sed 's/.*"seconds":\([^,}]*\).*/\1/')
    printf '%s\n' "$record" | awk -v name="$1" -v flags="$2" -v note="$4" -v seconds="${seconds:-0}" '
        function number(key,   at) {
            at = index($0, "\"" key "\":")
            return at ? substr($0, at + length(key) + 3) + 0 : "–"
        }
        function all(key,   rest, at, count) {
            rest = $0
            count = 0
            while (at = index(rest, "\"" key "\":")) {
                rest = substr(rest, at + length(key) + 3)
                found[++count] = rest + 0
            }
            return count
        }
        function sum(key,   count, total, i) {
            count = all(key)
            for (i = 1; i <= count; i++) total += found[i]
            return total + 0
        }
        {
            if ($0 == "") {
                printf "| %s | – | – | – | – | – | – | – | %s%s |\n", name, flags, note
                exit
            }
            bits = number("bits_per_dim")
            reconstruction = number("reconstruction")
            used = sum("used")
            dead = sum("dead")
            layers = all("perplexity")
            few = ""
            shown = layers < 5 ? layers : 5
            for (i = 0; i < shown; i++) {
                layer = shown < 2 ? 1 : 1 + int(i * (layers - 1) / (shown - 1) + 0.5)
                few = few sprintf("%s%.0f", i ? " " : "", found[layer])
            }
            match($0, /"split":"[a-z]*"/)
            split_name = substr($0, RSTART + 9, RLENGTH - 10)
            if (split_name != "validation") note = note " (on " split_name " images)"
            printf "| %s | %d | %.0f | %.4f | %.4f | %.4f | %d of %d | %s | %s%s |\n", name, number("step"), seconds, \
                bits, reconstruction, bits - reconstruction, used, used + dead, few, flags, note
        }'
}

# Calls `$1 NAME FLAGS` for each line of the list.
each_line() {
    local line name rest
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in '' | '#'*) continue ;; esac
        name=$(echo "${line%%|*}" | tr -d '[:space:]')
        rest=''
        [[ $line == *'|'* ]] && rest=$(echo "${line#*|}" | xargs)
        [ -n "$name" ] || fail "a line of the list has no name: $line"
        "$1" "$name" "$rest" || return
    done <"$2"
}

show() { # NAME FLAGS
    grep -F "| $1 | " "$table/results.md" 2>/dev/null | tail -n 1 | grep . ||
        row "$1" "$2" "$table/$1" ' (unfinished)'
}

if [ -n "$table" ]; then
    [ -f "$table/list" ] || fail "$table is not the folder of a screen: it has no file list"
    echo "$header"
    each_line show "$table/list"
    exit
fi

[ -n "$list" ] || { usage >&2 && exit 2; }
[ -f "$list" ] || fail "there is no list $list"
command -v "$rrvq" >/dev/null || fail "there is no program $rrvq; name it with --rrvq"
for number in "$steps" "$jobs"; do
    [[ $number =~ ^[1-9][0-9]*$ ]] || fail "--steps and --jobs are numbers of at least 1, not $number"
done
mkdir -p "$out" || exit 2
cp "$list" "$out/list"
[ -f "$out/results.md" ] || echo "$header" >"$out/results.md"

common="--set data.holdout=0.1 --set train.schedule=cosine --set train.lr_floor=0 --set train.eval_every=0
    --set train.save_every=0"
[ -n "$preset" ] || { preset=l16-cifar10 && common="$common --set model.likelihood=mixture"; }
[ -z "$data" ] || common="$common --data $data"

one() { # NAME FLAGS
    local dir=$out/$1 note=''
    # Words of the flags are separated by spaces.
    # shellcheck disable=SC2086
    if ! "$rrvq" train --preset "$preset" --out "$dir" --overwrite --steps "$steps" $common $flags $2 \
        >"$dir.txt" 2>&1; then
        note=" (failed: $(tail -n 1 "$dir.txt" | tr '|' '/'))"
    fi
    row "$1" "$2" "$dir" "$note" | tee -a "$out/results.md"
}

start() { # NAME FLAGS
    # A run that failed is tried again.
    if grep -F "| $1 | " "$out/results.md" | tail -n 1 | grep -v ' (failed: '; then return; fi
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    one "$1" "$2" &
}

# Children end with the screen; what they had logged stays.
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM
echo "$header"
each_line start "$list"
wait
