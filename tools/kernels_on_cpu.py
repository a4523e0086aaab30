#!/usr/bin/env python3
"""Runs the kernels of the responsibility on a CPU, from their CUDA source, and compares them with float64.

    RRVQ_KERNEL_FOLDER=FOLDER cargo test -p rrvq-tensor --lib sources_and_launches
    tools/kernels_on_cpu.py FOLDER                          what there is
    tools/kernels_on_cpu.py FOLDER r333-d128-k256-prior     one call, forward and backward
        --far 10        embeddings ten times as large, codes a tenth
        --spread 0.1    standard deviation of log-variances
        --sanitize      with the compiler's checks of addresses

Needs g++ and numpy; seconds to minutes a call. There is no noise, so that a reference is easy: the noise of kernels is
tested on GPUs. ReinMax is the exception: its gradient depends on the noise only through the code that was drawn, and that
is taken from the forward kernel. What it prints are lengths of differences, of the lengths of what is wanted.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile

import numpy as np

TAU = 0.6


def bf16(x):
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def inputs(call, far, spread):
    rows, dim, codes = call["rows"], call["dim"], call["codes"]
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)
    given = {
        "e_q": normal(rows, dim) * np.float32(far),
        "e_p": normal(rows, dim) * np.float32(far),
        "dz": normal(rows, dim),
        "dkl": normal(rows),
        "mu": normal(codes, dim) * np.float32(1.5 / np.sqrt(dim) / far),
        "logvar": normal(codes, dim) * np.float32(spread),
        "tau": np.float32([TAU]),
        "scale": np.float32([call["mode"] == "reinmax"]),
        "counter": np.uint32([5, 0, 6, 0]),
    }
    if call["half"]:
        given.update({name: bf16(given[name]) for name in ("e_q", "e_p", "dz")})
    return given


def wanted(call, given, drawn):
    """Values and gradients in float64. dz reaches the kernels that are not exact as bf16. `drawn` are ReinMax's codes."""
    wide = {name: value.astype(np.float64) for name, value in given.items()}
    mu, logvar, rows, codes = wide["mu"], wide["logvar"], call["rows"], call["codes"]
    dz = wide["dz"] if call["exact"] or call["plain"] else bf16(given["dz"]).astype(np.float64)
    iv = np.exp(-logvar)

    def log_softmax(a):
        a = a - a.max(1, keepdims=True)
        return a - np.log(np.exp(a).sum(1, keepdims=True))

    def scores(e):
        return log_softmax(e @ (mu * iv).T - 0.5 * (e * e) @ iv.T - 0.5 * (mu * mu * iv + logvar).sum(1))

    log_q = scores(wide["e_q"])
    log_p = scores(wide["e_p"]) if call["prior"] else np.full((rows, codes), -np.log(codes))
    q, p, y = np.exp(log_q), np.exp(log_p), np.exp(log_softmax(log_q / TAU))
    kl, index = (q * (log_q - log_p)).sum(1), drawn if call["mode"] == "reinmax" else log_q.argmax(1)
    weights = y if call["mode"] == "relaxed" else np.eye(codes)[index]
    dy = dz @ mu.T
    dkl = wide["dkl"][:, None]
    less_mean = lambda pi: pi * (dy - (pi * dy).sum(1, keepdims=True))
    of_z = 2 * less_mean((weights + y) / 2) - less_mean(q) / 2 if call["mode"] == "reinmax" else less_mean(y) / TAU
    of_q = of_z + q * (log_q - log_p - kl[:, None]) * dkl
    of_p = (p - q) * dkl if call["prior"] else np.zeros((rows, codes))
    back = lambda g, e: g @ (mu * iv) - e * (g @ iv)
    once = of_q.T @ wide["e_q"] + of_p.T @ wide["e_p"]
    twice = of_q.T @ wide["e_q"] ** 2 + of_p.T @ wide["e_p"] ** 2
    total = (of_q + of_p).sum(0)[:, None]
    values = {
        "index": index,
        "z": weights @ mu,
        "kl": kl,
        "de_q": back(of_q, wide["e_q"]),
        "dmu": iv * (once - mu * total) + weights.T @ dz,
        "dlogvar": 0.5 * (iv * (twice - 2 * mu * once + mu * mu * total) - total),
    }
    if call["prior"]:
        values["de_p"] = back(of_p, wide["e_p"])
    return values


def as_cpp(source):
    """What only a GPU's compiler understands goes; its instructions are in the header."""
    start = source.index("// The instructions CUDA C++ has no name for")
    end = source.index("// What every kernel of the responsibility shares")
    text = source[:start] + source[end:]
    text = text.replace("extern __shared__ float4 shared_memory[];", "").replace('extern "C" ', "")
    text = re.sub(r"u32 to = \(u32\)__cvta_generic_to_shared\(([^;]*)\);", r"char* to = (char*)(\1);", text)
    text = re.sub(r'asm volatile\("cp\.async\.cg[^;]*;" ::"r"\(([^)]*)\), "l"\(([^)]*)\)\);', r"copy_16(\1, \2);", text)
    return re.sub(r'asm volatile\("cp\.async[^)]*\);', "", text)


def program(call, folder, sizes, given):
    text, main = '#include "kernels_on_cpu.h"\n', "int main() {\n"
    main += "".join(f'auto {name} = read_all("{name}");\n' for name in given)
    main += "".join(f"std::vector<char> {name}({bytes}, (char)0xff);\n" for name, bytes in sizes.items())
    for way in ("forward", "backward"):
        scratch = max(call[way]["scratch"], 256)
        main += f"char* {way} = (char*)aligned_alloc(256, {scratch});\nmemset({way}, 0xff, {scratch});\n"
        launches = call[way]["launches"]
        for number in sorted({launch["source"] for launch in launches}):
            source = as_cpp((folder / f"{number}.cu").read_text())
            text += f"namespace {way}_{number} {{\n{source}\n}}\n"
            text += "".join(f"#undef {name}\n" for name in set(re.findall(r"#define (\w+)", source)))
        for launch in launches:
            source = (folder / f"{launch['source']}.cu").read_text()
            space = f"{way}_{launch['source']}"
            signature = re.search(rf"\b{launch['name']}\(([^)]*)\)", source).group(1)
            kinds = [re.sub(r"\s*\w+$", "", part.strip()) for part in signature.split(",")]
            stored = dict(re.findall(r"#define (E_Q|E_P|Z_OUT|DZ|DE_Q|DE_P) (\w+)", source))
            args = []
            for arg, kind in zip(launch["args"], kinds):
                for name, value in stored.items():
                    kind = re.sub(rf"\b{name}\b", value, kind)
                kind = re.sub(r"\b(bf16|Row)\b", rf"{space}::\1", kind)
                if isinstance(arg, list):
                    args.append(f"({kind})({way} + {arg[1]})")
                elif isinstance(arg, str):
                    args.append(f"({kind}){arg}.data()")
                else:
                    args.append(f"({kind}){arg or 0}")
            grid = launch["grid"]
            sizes_of = f"{grid[0]}, {grid[1]}, {launch['block']}, {launch['shared']}"
            main += f"launch({sizes_of}, [&] {{ {space}::{launch['name']}({', '.join(args)}); }});\n"
    main += "".join(f'write_all("{name}", {name});\n' for name in sizes)
    return text + main + "}\n"


def run(call, folder, far, spread, sanitize):
    given = inputs(call, far, spread)
    rows, dim, codes = call["rows"], call["dim"], call["codes"]
    map_bytes = rows * dim * (2 if call["half"] else 4)
    sizes = dict(z=map_bytes, index=4 * rows, kl=4 * rows, de_q=map_bytes, de_p=map_bytes, dmu=4 * codes * dim, dlogvar=4 * codes * dim)
    half = ("e_q", "e_p", "dz", "z", "de_q", "de_p") if call["half"] else ()
    here = pathlib.Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        (place / "program.cpp").write_text(program(call, folder, sizes, given))
        for name, value in given.items():
            value = (value.view(np.uint32) >> 16).astype(np.uint16) if name in half else value
            value.tofile(place / name)
        flags = ["-O1", "-g", "-fsanitize=address"] if sanitize else ["-O2"]
        flags += ["-w", "-fpermissive", "-std=c++17", "-fno-strict-aliasing", f"-I{here}"]
        subprocess.run(["g++", *flags, "program.cpp", "-o", "program"], cwd=place, check=True)
        # Addresses are asked about; what the program leaves to its end is not.
        quiet = os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
        subprocess.run(["./program"], cwd=place, check=True, env=quiet)
        drawn = np.fromfile(place / "index", np.uint32)
        for name, want in wanted(call, given, drawn).items():
            if name == "index":
                note = "by the forward kernel" if call["mode"] == "reinmax" else f"{(drawn != want).sum()} of {rows} differ"
                print(f"{name:8} {note}")
                continue
            have = np.fromfile(place / name, np.uint16 if name in half else np.float32)
            have = (have.astype(np.uint32) << 16).view(np.float32) if name in half else have
            apart = np.linalg.norm(have - want.ravel()) / np.linalg.norm(want)
            print(f"{name:8} {apart:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("call", nargs="?")
    parser.add_argument("--far", type=float, default=1.0)
    parser.add_argument("--spread", type=float, default=0.1)
    parser.add_argument("--sanitize", action="store_true")
    args = parser.parse_args()
    calls = {call["name"]: call for call in json.loads((args.folder / "calls.json").read_text())}
    if args.call is None:
        print("\n".join(calls))
    elif args.call not in calls:
        parser.error(f"{args.call} is none of the calls in {args.folder / 'calls.json'}; name the folder alone to see them")
    else:
        run(calls[args.call], args.folder, args.far, args.spread, args.sanitize)


if __name__ == "__main__":
    main()
