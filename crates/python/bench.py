"""What Python costs: encoding and decoding images through the package and through the program, side by side.

    python crates/python/bench.py PROGRAM [--images 1000] [--model tiles-2] [--repeat 3]

Both have to be built with the same profile. Times are those of `--images` images less those of the first 64, so that
starting, opening the model and compiling for it, which happen once a process, are on neither side. Rounds alternate;
the fastest of each is compared.
"""

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path

import rrvq

FEW = 64


def seconds(work):
    """Seconds by the clock, and of all cores together: the second is what a busy machine does not change."""
    cores = lambda: sum(os.times()[:4])
    begin, used = time.perf_counter(), cores()
    work()
    return time.perf_counter() - begin, cores() - used


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--model", default="tiles-2")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=["encode", "decode"])
    args = parser.parse_args()
    model = rrvq.load(args.model)
    images = model.sample(args.images, seed=1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = []
        for i, image in enumerate(images):
            files.append(f"{i:06}.png")
            rrvq.show(image[None], columns=1, scale=1).save(folder / files[-1])
        program = str(Path(args.program).resolve())
        run = lambda *words: subprocess.run([program, *words], cwd=folder, check=True, capture_output=True)
        for count in (FEW, args.images):
            rrvq.tokens(model, images[:count], out=folder / f"{count}.safetensors")
        codes = model.encode(images)
        work = {
            "encode": (
                lambda n: run("codes", args.model, *files[:n], "--out", "out.safetensors"),
                lambda n: model.encode(images[:n]),
            ),
            "decode": (
                lambda n: run("decode", args.model, f"{n}.safetensors", "--out", "out.png"),
                lambda n: model.decode([map[:n] for map in codes]),
            ),
        }
        print(f"{args.images} images, model {args.model}, fastest of {args.repeat} rounds")
        for name, sides in work.items():
            if args.only not in (None, name):
                continue
            times = [[], []]
            for _ in range(args.repeat):
                for side, kept in zip(sides, times):
                    many, few = seconds(lambda: side(args.images)), seconds(lambda: side(FEW))
                    kept.append([a - b for a, b in zip(many, few)])
            for i, kind in enumerate(("by the clock", "of all cores")):
                ours, theirs = (min(kept[i] for kept in side) for side in reversed(times))
                share = 100 * (ours / theirs - 1)
                print(f"{name}, {kind}: program {theirs:.2f} s, package {ours:.2f} s, {share:+.1f} %", flush=True)


if __name__ == "__main__":
    main()
