#!/usr/bin/env python3
"""What damage, kills and full disks cost the codec's files: the figures of docs/experiments/codec.md.

    tools/codec_edges.py --rrvq target/release/rrvq --images FOLDER --flips 200 --kills 200

FOLDER holds the images to compress; without it, 200 pictures of 32x32 pixels are made up. Needs nothing but Python 3.8 and
the program. Ends with 1 if anything was lost that should not be.
"""

import argparse
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

CHAIN = 16  # images that one flipped bit may cost


def png(width, height, rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def made_up(folder, count, side=32):
    """Slopes with noise, so that no image is smaller by prediction alone."""
    chance = random.Random(1)
    for number in range(count):
        a, b, c = (chance.randrange(1, 9) for _ in range(3))
        rows = [
            [(x * a + y * b + c * k * 20 + chance.randrange(24)) % 256 for x in range(side) for k in range(3)]
            for y in range(side)
        ]
        (folder / f"{number:03}.png").write_bytes(png(side, side, rows))


def run(program, args, **more):
    return subprocess.run([program, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)


def flipped_bits(program, file, whole, place, count):
    """Images lost to one flipped bit, for bits all over the file; wrong images among those that came back."""
    chance, bytes_ = random.Random(2), file.read_bytes()
    names = {path.name: path.read_bytes() for path in whole.iterdir()}
    lost, wrong = [], 0
    for number in range(count):
        # The first and the last bytes too, where headers are.
        bit = number if number < count // 4 else chance.randrange(8 * len(bytes_))
        bit = 8 * len(bytes_) - 1 - number if count // 4 <= number < count // 2 else bit
        bent = bytearray(bytes_)
        bent[bit // 8] ^= 1 << bit % 8
        damaged, out = place / "bent.rrvq", place / "bent"
        damaged.write_bytes(bent)
        ended = run(program, ["decompress", damaged, "-o", out, "--keep-going"])
        if ended.returncode != 2:
            sys.exit(f"bit {bit}: exit code {ended.returncode}, {ended.stderr}")
        back = {path.name: path.read_bytes() for path in out.iterdir()} if out.exists() else {}
        right = sum(back.get(name) == png for name, png in names.items())
        wrong += len(back) - right
        lost.append(len(names) - right)
        shutil.rmtree(out, ignore_errors=True)
    print(f"flipped bits: {count}; images lost to one, of {len(names)}: {sum(lost) / count:.1f} on average, {max(lost)} at most;"
          f" wrong images: {wrong}")
    return max(lost) <= min(CHAIN, len(names)) and wrong == 0


def kills(program, commands, place, count):
    """kill -9 at random moments: what is there is whole, and the next run leaves nothing behind."""
    chance, torn = random.Random(3), 0
    for number in range(count):
        name, args, made, expected, seconds = commands[number % len(commands)]
        child = subprocess.Popen([program, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0, 1.1 * seconds))
        child.send_signal(signal.SIGKILL)
        child.wait()
        for path in made.iterdir() if made.is_dir() else [made]:
            if path.exists() and not path.name.endswith(".rrvq-tmp"):
                torn += path.read_bytes() != expected[path.name]
    for name, args, made, expected, _ in commands:
        if run(program, args).returncode != 0:
            sys.exit(f"{name} fails after kills")
    left = len(list(place.rglob("*.rrvq-tmp")))
    print(f"kill -9: {count}; files that were not whole: {torn}; temporary files left after the next run: {left}")
    return torn == 0 and left == 0


def full_disk(program, commands, place):
    """Every file may grow to so many bytes and no further, for many limits: the old file stays, with exit code 2."""
    runs, lost, silent = 0, 0, 0
    for name, args, made, expected, _ in commands:
        largest = max(map(len, expected.values()))
        for limit in sorted({largest * k // 8 for k in range(8)} | {1, 59, largest - 1}):
            def limited(limit=limit):
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

            ended = run(program, args, preexec_fn=limited)
            runs += 1
            silent += ended.returncode != 2
            for path in made.iterdir() if made.is_dir() else [made]:
                lost += path.read_bytes() != expected.get(path.name)
        device = run(program, [a if a != made else "/dev/full" for a in args]) if not made.is_dir() else None
        if device:
            runs, silent = runs + 1, silent + (device.returncode != 2)
    left = len(list(place.rglob("*.rrvq-tmp")))
    print(f"full disk: {runs} runs; files lost or changed: {lost}; without exit code 2: {silent}; temporary files left: {left}")
    return lost == 0 and silent == 0 and left == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rrvq", default="target/release/rrvq", type=os.path.abspath)
    parser.add_argument("--images", type=pathlib.Path)
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--kills", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = pathlib.Path(scratch)
        folder = args.images
        if folder is None:
            folder = place / "images"
            folder.mkdir()
            made_up(folder, 200)
        images = sorted(path for path in folder.iterdir() if path.suffix in (".png", ".jpg", ".webp"))
        file, whole = place / "all.rrvq", place / "whole"
        few, lossy, some = place / "few.rrvq", place / "lossy.rrvq", place / "some"
        commands = []
        for name, words, made in (
            ("compress", ["compress", *images, "-o", file, "--force"], file),
            ("decompress", ["decompress", file, "-o", whole, "--force"], whole),
            ("compress few", ["compress", *images[:20], "-o", few, "--force"], few),
            ("compress --lossy", ["compress", *images[:20], "-o", lossy, "--lossy", "--force"], lossy),
            ("decompress few", ["decompress", few, "-o", some, "--force"], some),
        ):
            begun = time.time()
            ended = run(args.rrvq, words)
            if ended.returncode != 0:
                sys.exit(f"{name}: {ended.stderr}")
            files = made.iterdir() if made.is_dir() else [made]
            expected = {path.name: path.read_bytes() for path in files}
            commands.append((name, words, made, expected, time.time() - begun))
        print(f"{len(images)} images in {file.stat().st_size} bytes")
        fine = [
            flipped_bits(args.rrvq, file, whole, place, args.flips),
            kills(args.rrvq, commands[2:], place, args.kills),
            full_disk(args.rrvq, commands[2:], place),
        ]
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
