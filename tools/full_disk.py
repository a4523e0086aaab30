#!/usr/bin/env python3
"""A disk that fills up, at many points of every command: what was there stays whole, and the command fails with a sentence.

    tools/full_disk.py --rrvq target/release/rrvq

No file may grow beyond a limit (RLIMIT_FSIZE): for each command none at all, one byte, and for each file it writes one byte
too few, half of it, and 4096 bytes. Then standard output is a full device. A run that ended so goes on to the same weights
once there is room. Needs nothing but Python 3.9 and the program. Ends with 1 if anything is lost.
"""

import argparse
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

from codec_edges import made_up

FEW = "--set train.save_every=2 --set train.eval_every=3 --set train.batch=8 --set data.train_images=64 --set data.test_images=64"
VQ = "--set model.latent=nearest --set model.maps=[4] --set model.size=8"
# Name, words, and what standard output is for: "result" cannot be lost silently, "report" is not the result.
COMMANDS = [
    ("train", f"train --preset tiny-swatches --steps 6 --out new {FEW}", "report"),
    ("train --resume", "train --resume --out run --steps 8 --tensorboard", "report"),
    ("prior", "prior vq --steps 4 --set prior.save_every=2 --set prior.channels=4", "report"),
    ("eval", "eval run", "result"),
    ("sample", "sample run --out old/sample.png --force", "report"),
    ("neighbours", "neighbours run --out old/neighbours.png --force", "report"),
    ("reconstruct", "reconstruct run --out old/reconstruct.png --force", "report"),
    ("codes", "codes run images/000.png --out old/codes.safetensors --force", "report"),
    ("codes .npy", "codes run images/000.png --out old/codes.npy --force", "report"),
    ("decode", "decode run old/codes.safetensors --out old/decoded.png --force", "report"),
    ("compress", "compress images/000.png images/001.png -o old/two.rrvq --force", "report"),
    ("compress -o -", "compress images/000.png -o -", "result"),
    ("compress --lossy", "compress images/000.png images/001.png -o old/lossy.rrvq --lossy --force", "report"),
    ("decompress", "decompress old/two.rrvq -o old/back --force", "report"),
    ("decompress lossy", "decompress old/lossy.rrvq -o old/shown --force", "report"),
    ("decompress -o -", "decompress old/one.rrvq -o -", "result"),
    ("codec list", "codec list old/two.rrvq", "result"),
    ("codec eval", "codec eval tiles-2 images --images 1 --out old/compared --force", "result"),
    ("pack", "pack run --out old/packed.safetensors --force", "report"),
    ("info", "info run", "result"),
    ("report", "report run --out old/report.html --force", "report"),
    ("study", "study entropy --scale smoke --out old/study", "report"),
    ("presets", "presets --keys", "result"),
    ("models", "models", "result"),
    ("data info", "data info images", "result"),
    ("data fetch", "data fetch fashion-mnist --from file://{place}/nowhere --out fetched", "report"),
    ("bench step", "bench step --layers 2 --channels 8 --batch 2 --steps 2", "result"),
    ("doctor", "doctor", "result"),
    ("completions", "completions bash", "result"),
    ("man", "man", "result"),
    ("man --out", "man --out old/man --force", "report"),
    ("--help", "--help", "result"),
    ("train --help", "train --help", "result"),
    ("--version", "--version", "result"),
]
# These fail whatever the disk is like.
FAILING = ("data fetch",)


def contents(folder):
    """All files; a study's section without the minutes that it took, and a comparison's page without its numbers, times among them."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    for path in found:
        if path.endswith("section.json"):
            found[path] = re.sub(rb'"minutes": [^,]*', b'"minutes": 0', found[path])
        if path.endswith("compared/report.html"):
            found[path] = re.sub(rb"[0-9.,]+", b"0", found[path])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rrvq", default="target/release/rrvq", type=os.path.abspath)
    parser.add_argument("--only", help="a command of the list")
    args = parser.parse_args()
    faults = []
    with tempfile.TemporaryDirectory() as scratch:
        first, place = pathlib.Path(scratch) / "first", pathlib.Path(scratch) / "place"
        # Without other encoders, which take most of the time of a comparison.
        environment = {**os.environ, "PATH": "/nowhere", "RRVQ_CACHE": str(place / "cache"), "XDG_CACHE_HOME": str(place / "cache")}

        def run(words, limit=None, cwd=place, **more):
            def limited():
                if limit is not None:
                    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

            words = words.format(place=place).split()
            more = {"stdout": subprocess.DEVNULL, **more}
            return subprocess.run([args.rrvq, *words], cwd=cwd, env=environment, preexec_fn=limited,
                                  stderr=subprocess.PIPE, timeout=600, **more)

        def must(words, cwd):
            ended = run(words, cwd=cwd)
            if ended.returncode != 0:
                sys.exit(f"rrvq {words}: {ended.stderr.decode()}")

        (first / "images").mkdir(parents=True)
        (first / "old").mkdir()
        made_up(first / "images", 4)
        must(f"train --preset tiny-swatches --steps 4 --out run {FEW}", first)
        must(f"train --preset tiny-swatches --steps 4 --out vq {FEW} {VQ}", first)
        must("compress images/000.png -o old/one.rrvq", first)
        for name, words, _ in COMMANDS:
            if "old/" in words and " -o -" not in words:
                must(words, first)

        def fresh():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(first, place)

        runs = 0
        for name, words, output in COMMANDS:
            if args.only and args.only != name:
                continue
            fresh()
            begun = contents(place)
            ended = run(words)
            if (ended.returncode != 0) != (name in FAILING):
                sys.exit(f"{name}: {ended.stderr.decode()}")
            after = contents(place)
            places = tuple(place.replace(".npy", ".layer") for place in re.findall(r"(?:--out|-o) ([\w/.]+)", words))
            written = {path for path, data in after.items() if begun.get(path) != data or path.startswith(places)}
            written = {path for path in written if not path.startswith("cache")}
            sizes = {(place / path).stat().st_size for path in written if not path.endswith("config.toml")}
            limits = sorted({0, 1, 4096} | {size - 1 for size in sizes if size} | {size // 2 for size in sizes})
            for limit in limits if written else []:
                fresh()
                ended = run(words, limit)
                runs += 1
                said, found = ended.stderr.decode(errors="replace"), contents(place)
                enough = not sizes or limit >= max(sizes)
                # Pages and logs with times in them are not of the same size twice: of a log that this time is shorter than the limit, all
                # files must be there.
                fits = name == "prior" and all((place / path).exists() and (place / path).stat().st_size <= limit for path in written)
                if ended.returncode not in ((0, 2) if enough or fits or name in ("train --resume", "codec eval") else (2,)):
                    faults.append(f"{name}, files of {limit} bytes: exit code {ended.returncode}: {said}")
                if "panicked" in said or (ended.returncode == 2 and not said.startswith("rrvq: ")):
                    faults.append(f"{name}, files of {limit} bytes: {said}")
                for path, data in begun.items():
                    # A log grows, and a run may have got to a checkpoint in between; all else is the old file or the new one.
                    if found.get(path) not in (data, after[path]) and not (path.startswith("run/") and name == "train --resume"):
                        faults.append(f"{name}, files of {limit} bytes: {path} is neither old nor new")
                left = [path for path in found if path.endswith(".rrvq-tmp")]
                if left:
                    faults.append(f"{name}, files of {limit} bytes: {left} left behind")
                if name.startswith("train") and ended.returncode == 2:
                    again = words if name == "train --resume" else "train --resume --out new"
                    if not (place / words.split("--out ")[1].split()[0] / "config.toml").exists():
                        again = words + " --overwrite"
                    if run(again).returncode != 0:
                        faults.append(f"{name}, files of {limit} bytes: cannot go on")
                    model = f"{words.split('--out ')[1].split()[0]}/model.safetensors"
                    if contents(place).get(model) != after[model]:
                        faults.append(f"{name}, files of {limit} bytes: goes on to other weights")
            fresh()
            with open("/dev/full", "wb") as full:
                ended = run(words, stdout=full)
            runs += 1
            if output == "result" and ended.returncode != 2:
                faults.append(f"{name} to a full device: exit code {ended.returncode}")
            print(f"{name}: {len(limits) if written else 0} limits", flush=True)
            if b"panicked" in ended.stderr:
                faults.append(f"{name} to a full device: {ended.stderr.decode()}")
    for fault in faults:
        print(fault)
    print(f"full disk: {runs} runs of {len(COMMANDS)} commands; faults: {len(faults)}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
