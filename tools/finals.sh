#!/usr/bin/env bash
# Long trainings beside each other on a machine that is to be had for minutes: they are started with all that is to be known of
# them at the end, looked at, stopped if they go wrong, and packed so that nothing is lost with the machine.
set -u

usage() {
    cat <<'TEXT'
usage: tools/finals.sh start --out DIR [--rrvq PROGRAM] [--flags "FLAGS"] [--share N] [--priority LEVEL] NAME FLAGS...
       tools/finals.sh stop DIR NAME
       tools/finals.sh look DIR SECONDS [ARCHIVES]

  start           starts `rrvq train FLAGS --out DIR/runs/NAME` and returns; when it has ended well, bits of the test images and of as
                  many training images, samples and reconstructions go to DIR/said
    --out DIR     folder of the runs; what they say goes to DIR/said
    --rrvq PROGRAM  the program [default: rrvq]
    --flags FLAGS flags that training and evaluation have in common, such as "--device cuda --data data/cifar10"
    --share N     under NVIDIA's MPS, at most so many percent of the GPU's processors [default: 100]
    --priority LEVEL  normal; or low, which under MPS computes where runs of normal priority leave room [default: normal]
  stop            has a run save itself and end; nothing else is made of it
  look            waits until all have ended, at most so many seconds; then says how each run stands
    ARCHIVES      also packs what was said, logs and settings of all runs, into files of at most 15 MiB

With NVIDIA's MPS, where it is there, processes share a GPU instead of taking turns.
TEXT
}

# shellcheck source=tools/apart.bash
. "$(dirname "${BASH_SOURCE[0]}")/apart.bash"

start() {
    local out='' rrvq=rrvq flags='' share=100 priority=normal
    local others=()
    options "out rrvq flags share priority" "$@"
    set -- "${others[@]}"
    [ -n "$out" ] || fail "runs need a folder to go to; name it with --out DIR"
    [ $# -gt 1 ] || fail "a run needs a name and flags of rrvq train, such as --preset NAME"
    [[ $priority == normal || $priority == low ]] || fail "there is no priority $priority; it is normal or low"
    command -v "$rrvq" >/dev/null || fail "there is no program $rrvq; name it with --rrvq"
    local name=$1
    shift
    [ ! -e "$out/runs/$name" ] || fail "there is a run called $name in $out; name this one differently"
    mkdir -p "$out/said" "$out/runs" || exit 2
    [ -f "$out/said/begun" ] || date +%s >"$out/said/begun"
    echo "$name" >>"$out/said/started"
    # shellcheck disable=SC2016
    apart '
        rrvq=$0 out=$1 name=$2 flags=$3 share=$4 priority=$5; shift 5
        run=$out/runs/$name said=$out/said/$name
        # Flags are separated by spaces.
        (
            [ "$share" = 100 ] || export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$share
            [ "$priority" = normal ] || export CUDA_MPS_CLIENT_PRIORITY=1
            exec $rrvq train $flags --out "$run" "$@"
        ) >"$said.txt" 2>&1 &
        echo $! >"$said.process"
        wait $!
        code=$?
        rm "$said.process"
        if [ $code = 0 ] && [ ! -e "$said.stopped" ]; then
            of=$($rrvq eval "$run" $flags --split test --json 2>"$said.test.txt" | tee "$said.test.json" | grep -o "\"images\": *[0-9]*" | grep -o "[0-9]*")
            $rrvq eval "$run" $flags --split train --images "${of:-5000}" --json >"$said.train.json" 2>"$said.train.txt"
            drawn=$(printf "%s" "$flags" | grep -o -e "--device [^ ]*")
            $rrvq sample "$run" $drawn --out "$said-samples.png" >"$said.samples.txt" 2>&1
            $rrvq reconstruct "$run" $drawn --out "$said-reconstructions.png" >"$said.reconstructions.txt" 2>&1
        fi
        echo "$name exit $code after $(($(date +%s) - $(cat "$out/said/begun"))) s" >>"$out/said/ended"
    ' "$rrvq" "$out" "$name" "$flags" "$share" "$priority" "$@"
}

stop() {
    [ $# = 2 ] || fail "stop needs a folder and the name of a run"
    local process
    process=$(cat "$1/said/$2.process" 2>/dev/null) || fail "no run called $2 is being trained in $1"
    touch "$1/said/$2.stopped"
    kill -INT "$process"
}

look() {
    [ $# -ge 2 ] || fail "look needs a folder and seconds"
    local out=$1 archives=${3:-} run
    [ -f "$out/said/started" ] || fail "no runs were started into $out"
    waited "$2" "$out/said/started" "$out/said/ended"
    echo "$(($(date +%s) - $(cat "$out/said/begun"))) s since the start"
    cat "$out/said/ended" 2>/dev/null
    for run in "$out"/runs/*/; do
        standing "$run"
    done
    [ -n "$archives" ] || return 0
    mkdir -p "$archives" || exit 2
    archives=$(cd "$archives" && pwd)
    cd "$out" || exit 2
    # shellcheck disable=SC2046
    packed "$archives/finals" said $(find runs -name log.jsonl -o -name config.toml)
    ls -l "$archives"
}

case ${1:-} in
--help | -h) usage ;;
start | stop | look) "$@" ;;
'') usage >&2 && exit 2 ;;
*) fail "there is no command $1; --help lists them" ;;
esac
