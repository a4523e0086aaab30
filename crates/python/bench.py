"""What Python costs: encoding and decoding images through the package and through the program, side by side.

    python crates/python/bench.py PROGRAM [--images 1000] [--model tiles-2] [--repeat 3]

Both have to be built with the same profile, and the model to be one of CIFAR-10. Times are those of `--images` images less those
of the first 64, so that starting, opening the model and compiling for it, which happen once a process, are on neither side. Rounds
alternate; the fastest of each is compared. What is compared is the same work:

- tokens: the images of a data set to a file of codes;
- decode: codes to a sheet of pictures in a PNG file;
- encode: the package takes an array; the program, which has no arrays, reads as many PNG files, and writes its codes.
"""

import argparse
import os
import subprocess
import tempfile
import time
from math import ceil, sqrt
from pathlib import Path

import numpy as np

import rrvq

FEW = 64


def seconds(work):
    """Seconds by the clock, and of all cores together: the second is what a busy machine does not change."""
    cores = lambda: sum(os.times()[:4])
    begin, used = time.perf_counter(), cores()
    work()
    return time.perf_counter() - begin, cores() - used


def batch(images):
    """As a file of CIFAR-10: 10,000 records of a label and three planes."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    rows = np.resize(planes, (10_000, planes.shape[1]))
    return np.concatenate([np.zeros((10_000, 1), np.uint8), rows], axis=1).tobytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--model", default="tiles-2")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=["tokens", "decode", "encode"])
    args = parser.parse_args()
    model = rrvq.load(args.model)
    images = model.sample(args.images, seed=1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = []
        for i, image in enumerate(images):
            files.append(f"{i:06}.png")
            rrvq.show(image[None], columns=1, scale=1).save(folder / files[-1])
        data = folder / "cifar10"
        data.mkdir()
        (data / "test_batch.bin").write_bytes(batch(images))
        for i in range(5):
            os.link(data / "test_batch.bin", data / f"data_batch_{i + 1}.bin")
        program = str(Path(args.program).resolve())
        run = lambda *words: subprocess.run([program, *words, "--force"], cwd=folder, check=True, capture_output=True)
        for count in (FEW, args.images):
            rrvq.tokens(model, images[:count], out=folder / f"{count}.safetensors")
        codes = model.encode(images)
        listed = lambda n: ("--data", str(data), "--split", "test", "--count", str(n))
        tokens = folder / "tokens.safetensors"
        sheet = folder / "sheet.png"
        work = {
            "tokens": (
                lambda n: run("codes", args.model, *listed(n), "--out", "out.safetensors"),
                lambda n: rrvq.tokens(model, data, split="test", count=n, out=tokens, progress=False),
            ),
            "decode": (
                lambda n: run("decode", args.model, f"{n}.safetensors", "--out", "out.png"),
                lambda n: rrvq.show(model.decode([map[:n] for map in codes]), columns=min(16, ceil(sqrt(n)))).save(sheet),
            ),
            "encode": (
                lambda n: run("codes", args.model, *files[:n], "--out", "out.safetensors"),
                lambda n: model.encode(images[:n]),
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
