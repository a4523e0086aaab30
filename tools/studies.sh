#!/usr/bin/env bash
# Studies beside each other on a machine that is to be had for minutes: they are started, looked at now and then, and what they
# found is packed so that it can be taken away before the machine goes.
set -u

usage() {
    cat <<'TEXT'
usage: tools/studies.sh start --out DIR [--rrvq PROGRAM] [--flags "FLAGS"] STUDY["FLAGS"]...
       tools/studies.sh look DIR SECONDS [ARCHIVES]

  start           starts `rrvq study STUDY FLAGS --out DIR` for each, and returns; a study that failed is tried once more.
                  A STUDY may have flags of its own behind its name, in one word: "depth --jobs 6 --budget 0.5"
    --out DIR     folder of the page, the studies and their runs; what they say goes to DIR/said
    --rrvq PROGRAM  the program [default: rrvq]
    --flags FLAGS flags of all studies, such as "--scale full --device cuda --data data/cifar10"
  look            waits until all have ended, at most so many seconds; then says how they stand: studies that ended and when,
                  and steps, bits and codes in use of every run
    ARCHIVES      also packs what there is, into files of at most 15 MiB: each finished study, what was said, and logs, evaluations
                  and settings of all runs

With NVIDIA's MPS, where it is there, processes share a GPU instead of taking turns.
TEXT
}

# shellcheck source=tools/apart.bash
. "$(dirname "${BASH_SOURCE[0]}")/apart.bash"

start() {
    local out='' rrvq=rrvq flags=''
    local others=()
    options "out rrvq flags" "$@"
    set -- "${others[@]}"
    [ -n "$out" ] || fail "studies need a folder to write to; name it with --out DIR"
    [ $# -gt 0 ] || fail "no study is named; rrvq study lists them"
    command -v "$rrvq" >/dev/null || fail "there is no program $rrvq; name it with --rrvq"
    mkdir -p "$out/said" || exit 2
    date +%s >"$out/said/begun"
    local study name
    for study in "$@"; do
        name=${study%% *}
        echo "$name" >>"$out/said/started"
        # shellcheck disable=SC2016
        apart '
            for try in 1 2; do
                # Flags are separated by spaces.
                $0 study $1 $2 --out "$3" >>"$3/said/$4.txt" 2>&1 && break
            done
            echo "$4 exit $? after $(($(date +%s) - $(cat "$3/said/begun"))) s" >>"$3/said/ended"
        ' "$rrvq" "$study" "$flags" "$out" "$name"
    done
}

look() {
    [ $# -ge 2 ] || fail "look needs a folder and seconds"
    local out=$1 archives=${3:-} run
    [ -f "$out/said/started" ] || fail "no studies were started into $out"
    waited "$2" "$out/said/started" "$out/said/ended"
    echo "$(($(date +%s) - $(cat "$out/said/begun"))) s since the start; $(df -h --output=avail "$out" | tail -n 1 | tr -d ' ') of disk left"
    cat "$out/said/ended" 2>/dev/null
    for run in "$out"/runs/*/*/; do
        standing "$run"
    done
    [ -n "$archives" ] || return 0
    mkdir -p "$archives" || exit 2
    archives=$(cd "$archives" && pwd)
    cd "$out" || exit 2
    for run in */section.json; do
        [ -f "$run" ] && packed "$archives/$(dirname "$run")" "$(dirname "$run")"
    done
    packed "$archives/said" said
    # shellcheck disable=SC2046
    packed "$archives/logs" $(find runs -name log.jsonl -o -name judged.jsonl -o -name config.toml 2>/dev/null)
    ls -l "$archives"
}

case ${1:-} in
--help | -h) usage ;;
start | look) "$@" ;;
'') usage >&2 && exit 2 ;;
*) fail "there is no command $1; --help lists them" ;;
esac
