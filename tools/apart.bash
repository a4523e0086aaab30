# What finals.sh and studies.sh share: processes that go on after their caller, how runs stand, archives that can be taken away.
# shellcheck shell=bash

fail() {
    echo "$(basename "$0"): $1" >&2
    exit 2
}

# Gives values of options to variables of the caller that are called the same, and what follows them to its `others`.
options() { # "NAME NAME..." ARGUMENTS...
    local known=$1
    shift
    while [ $# -gt 0 ] && [[ $1 == --* ]]; do
        [[ " $known " == *" ${1#--} "* ]] || fail "there is no option $1; --help lists them"
        [ $# -gt 1 ] || fail "$1 needs a value"
        printf -v "${1#--}" %s "$2"
        shift 2
    done
    # shellcheck disable=SC2034
    others=("$@")
}

# Starts a bash script with arguments that lives on when its caller ends, and beside others on one GPU: with NVIDIA's MPS, where it is
# there, processes share a GPU instead of taking turns.
apart() { # SCRIPT ARGUMENTS...
    # Whoever called must not be kept waiting by what goes on: nothing of its output is handed down.
    # By the name of the process, which Linux cuts to 15 letters: a shell whose command line has the word is not MPS.
    if command -v nvidia-cuda-mps-control >/dev/null && ! pgrep -x nvidia-cuda-mps >/dev/null; then
        setsid nvidia-cuda-mps-control -d </dev/null >/dev/null 2>&1
    fi
    setsid nohup bash -c "$@" </dev/null >/dev/null 2>&1 &
}

# Into files that no transfer refuses for their size.
packed() { # ARCHIVE PATHS...
    local archive=$1
    shift
    tar cz "$@" 2>/dev/null | split -b 15M -d -a 2 - "$archive.tgz."
}

# Waits until as many lines are in one file as in another, at most so many seconds.
waited() { # SECONDS STARTED ENDED
    local until=$(($(date +%s) + $1)) all
    all=$(wc -l <"$2")
    while [ "$(date +%s)" -lt "$until" ] && [ "$(cat "$3" 2>/dev/null | wc -l)" -lt "$all" ]; do sleep 1; done
}

number() { # RECORD KEY
    printf '%.6g' "$(printf '%s' "$1" | grep -o "\"$2\":[-0-9.e]*" | head -n 1 | cut -d : -f 2)"
}

# Steps and bits of a run, and the codes in use of each layer.
standing() { # RUN
    local trained judged of minutes
    [ -f "$1/log.jsonl" ] || return 0
    trained=$(grep '"kind":"train"' "$1/log.jsonl" | tail -n 1)
    judged=$(grep '"kind":"eval"' "$1/log.jsonl" | tail -n 1)
    setting() { sed -n "/^\[train\]/,\$ s/^$2 = //p" "$1/config.toml" | head -n 1; }
    minutes=$(setting "$1" minutes)
    of="of $(setting "$1" steps)"
    # How many steps fit is known at the end.
    [ "$minutes" = 0.0 ] || of="in $(number "$trained" seconds) s of $minutes minutes"
    echo "$(basename "$1"): step $(number "$trained" step) $of, $(number "$trained" images_per_second) images a second," \
        "$(number "$trained" bits_per_dim) bits of the batch, gradient $(number "$trained" grad_norm);" \
        "at step $(number "$judged" step) $(number "$judged" bits_per_dim) bits," \
        "codes $(printf '%s' "$judged" | grep -o '"used":[0-9]*' | cut -d : -f 2 | tr '\n' ' ')"
}
