#!/usr/bin/env python3
"""Pieces of photographs, for models of lossy files.

    natural_photos.py OUT FOLDER[:SCALES[:MOST]]...

Every picture of a FOLDER (and below) is scaled by each of SCALES (such as 1,0.5; 1 if none are named) and cut by an even grid into
pieces of at most 256 a side, which become PNG files in OUT. Full size teaches what photographs are, a half and less what thumbnails
are. MOST takes so many pictures of the folder, evenly spaced over their sorted names. Pieces with a side below 64 are left out.
Needs Pillow; the same files give the same pieces.

Train on them with --data OUT --set data.name=folder --set data.crop=random.
"""
import os
import sys

from PIL import Image

LONGEST, SHORTEST = 256, 64
ENDINGS = (".jpg", ".jpeg", ".png", ".webp")
Image.MAX_IMAGE_PIXELS = None


def pictures(folder):
    found = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
    return sorted(path for path in found if path.lower().endswith(ENDINGS))


def edges(length):
    """Where a side is cut: even parts, none longer than LONGEST."""
    parts = -(-length // LONGEST)
    return [length * i // parts for i in range(parts + 1)]


def pieces(image):
    columns, rows = edges(image.width), edges(image.height)
    for above, below in zip(rows, rows[1:]):
        for left, right in zip(columns, columns[1:]):
            if min(right - left, below - above) >= SHORTEST:
                yield left, above, image.crop((left, above, right, below))


def cut(path, name, scales, out):
    image = Image.open(path).convert("RGB")
    count = 0
    for scale in scales:
        size = [max(1, round(side * scale)) for side in image.size]
        scaled = image if scale == 1 else image.resize(size, Image.LANCZOS)
        for left, above, piece in pieces(scaled):
            piece.save(os.path.join(out, f"{name}-{round(100 * scale)}-{left}-{above}.png"))
            count += 1
    return count


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for number, wanted in enumerate(sys.argv[2:]):
        folder, scales, most = (wanted.split(":") + ["", ""])[:3]
        found = pictures(folder)
        if not found:
            sys.exit(f"{folder} holds no pictures ({', '.join(ENDINGS)}); name a folder of photographs")
        kept = min(int(most or len(found)), len(found))
        found = [found[i * len(found) // kept] for i in range(kept)]
        scales = [float(scale) for scale in (scales or "1").split(",")]
        count = sum(cut(path, f"{number}-{i:05}", scales, out) for i, path in enumerate(found))
        print(f"{folder}: {len(found)} pictures, {count} pieces")


if __name__ == "__main__":
    main()
