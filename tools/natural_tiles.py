#!/usr/bin/env python3
"""Tiles of natural images for the codec's own model, in the format of CIFAR-10's binary batches.

    natural_tiles.py CIFAR10 CELEBA OUT

CIFAR10 is the folder of the binary batches, CELEBA that of the aligned JPEGs (img_align_celeba, whole or in part; the number
of a file tells its split). Half of the tiles are CIFAR-10's images, label 0; half are 32 x 32 cut-outs of the photographs, label
1, at full size, two thirds and half of it, so that fine grain, JPEG's own traces and sharp edges all occur. Training tiles come
from training images alone, test tiles from test images. Needs numpy and Pillow; the same files give the same tiles.
"""
import os
import sys

import numpy as np
from PIL import Image

SIDE, BATCH = 32, 10_000
TRAIN_END, TEST_START = 162_770, 182_638


def cifar(folder, names, count):
    rows = [np.fromfile(os.path.join(folder, n), np.uint8).reshape(-1, 3073) for n in names]
    rows = np.concatenate(rows)[:count].copy()
    rows[:, 0] = 0
    return rows


def cut(path, rng):
    image = Image.open(path).convert("RGB")
    scale = rng.choice([1.0, 2 / 3, 0.5])
    if scale < 1:
        size = [max(SIDE, round(v * scale)) for v in image.size]
        image = image.resize(size, Image.LANCZOS)
    left, top = (int(rng.integers(0, v - SIDE + 1)) for v in image.size)
    tile = np.asarray(image.crop((left, top, left + SIDE, top + SIDE)))
    return np.concatenate([[1], tile.transpose(2, 0, 1).reshape(-1)]).astype(np.uint8)


def tiles(cifar_rows, files, rng):
    picked = rng.choice(len(files), len(cifar_rows), replace=len(files) < len(cifar_rows))
    cuts = np.stack([cut(files[i], rng) for i in picked])
    return rng.permutation(np.concatenate([cifar_rows, cuts]))


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, photographs, out = sys.argv[1:]
    names = sorted(n for n in os.listdir(photographs) if n.endswith(".jpg"))
    number = {n: int(n.split(".")[0]) for n in names}
    path = lambda n: os.path.join(photographs, n)
    training = [path(n) for n in names if number[n] <= TRAIN_END]
    test = [path(n) for n in names if number[n] >= TEST_START]
    if not training or not test:
        sys.exit(f"{photographs} has no photographs of the training or of the test split; name the folder of CelebA's JPEGs")
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(0)
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)]
    rows = tiles(cifar(source, batches, 5 * BATCH // 2), training, rng)
    for i, name in enumerate(batches):
        rows[i * BATCH : (i + 1) * BATCH].tofile(os.path.join(out, name))
    tiles(cifar(source, ["test_batch.bin"], BATCH // 2), test, rng).tofile(os.path.join(out, "test_batch.bin"))
    print(f"{out}: {len(rows)} tiles to train on, {BATCH} to test on")


main()
