#!/usr/bin/env python3
"""kill -9 at random moments of a training, resume, until it is done: the same bytes, and nothing left behind.

    tools/kills.py --rrvq target/release/rrvq --kills 1000

A tiny model is trained once without a kill. Then the same training is begun again and again, killed, resumed and killed,
until it ends; every file of it must be that of the first run, but for the seconds it took, and there must be no other file.
Needs nothing but Python 3.8 and the program. Ends with 1 if anything differs.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

STEPS = 12
SETTINGS = {
    "train.save_every": 3,
    "train.eval_every": 4,
    "train.log_every": 2,
    "train.batch": 8,
    "train.schedule": "plateau",
    "data.train_images": 64,
    "data.test_images": 64,
}
TIMES = ("seconds", "images_per_second")


def essence(path):
    """A file without the times in it."""
    data = path.read_bytes()
    if path.name == "log.jsonl":
        lines = [json.loads(line) for line in data.splitlines()]
        return [{key: value for key, value in line.items() if key not in TIMES} for line in lines]
    if path.name == "state.safetensors":
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        header["__metadata__"].pop("seconds")
        return header, data[8 + length :]
    return data


def contents(run):
    files = (path for path in run.rglob("*") if not path.is_dir())
    return {str(path.relative_to(run)): essence(path) for path in files}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rrvq", default="target/release/rrvq", type=os.path.abspath)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(scratch)

        def start(run, resume):
            words = ["train", "--out", place / run]
            words += ["--resume"] if resume else ["--preset", "tiny-swatches", "--steps", STEPS]
            if not resume:
                words += [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
            return subprocess.Popen([args.rrvq, *map(str, words)], **quiet)

        def finish(child):
            said = child.communicate()[1]
            if child.returncode != 0:
                sys.exit(f"a training ended with {child.returncode}: {said}")

        begun = time.time()
        finish(start("whole", False))
        seconds = time.time() - begun
        expected = contents(place / "whole")
        kills, runs, different, left = 0, 0, 0, 0
        while kills < args.kills:
            resume = False
            # A few kills each, then to the end.
            for _ in range(min(chance.randint(1, 5), args.kills - kills)):
                child = start("killed", resume)
                time.sleep(chance.uniform(0, 1.1 * seconds))
                over = child.poll() is not None
                child.kill()
                child.communicate()
                # Killed before it had a configuration, there is nothing to go on from.
                resume = (place / "killed" / "config.toml").exists()
                if over:
                    break
                kills += 1
            begun = time.time()
            finish(start("killed", resume))
            # What the machine's other work allows changes; moments are to fall all over a run.
            seconds = 0.9 * seconds + 0.1 * (time.time() - begun)
            found = contents(place / "killed")
            left += len(found.keys() - expected.keys())
            different += sum(found.get(name) != value for name, value in expected.items())
            runs += 1
            shutil.rmtree(place / "killed")
            if runs % 20 == 0:
                print(f"{kills} kills, {different} files differ, {left} left behind", file=sys.stderr, flush=True)
    print(f"kill -9: {kills} in {runs} trainings; files that differ from an undisturbed run's: {different}; "
          f"files left behind: {left}")
    sys.exit(0 if different == left == 0 and kills >= args.kills else 1)


if __name__ == "__main__":
    main()
