#!/usr/bin/env python3
"""Checks the relative links of every Markdown file that git tracks or would track: the file exists, and so does the heading
a link names.

    tools/check_links.py

Prints each broken link as FILE:LINE and exits with 1 when there is one. Needs git. Addresses of other sites are not visited.
"""
import pathlib
import re
import subprocess
import sys

LINK = re.compile(r"\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")


def lines(path):
    """The lines outside code blocks, numbered."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def anchors(path):
    """The anchors that GitHub gives to the headings."""
    seen = {}
    for _, line in lines(path):
        if match := re.match(r"#{1,6} +(.*?) *#*$", line):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1])
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            count = seen.get(anchor, 0)
            seen[anchor] = count + 1
            yield f"{anchor}-{count}" if count else anchor


def main():
    root = pathlib.Path(subprocess.check_output(["git", "rev-parse", "--show-toplevel"], text=True).strip())
    listed = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    files = [root / name for name in subprocess.check_output(listed, text=True).split("\0") if name]
    broken = checked = 0
    for path in filter(pathlib.Path.exists, files):
        for number, line in lines(path):
            for target in LINK.findall(line):
                if re.match(r"[a-z][a-z+.-]*:", target):
                    continue
                checked += 1
                name, _, anchor = target.partition("#")
                other = (path.parent / name) if name else path
                if not other.exists():
                    why = "there is no such file"
                elif anchor and (other.suffix != ".md" or anchor not in anchors(other)):
                    why = "there is no such heading"
                else:
                    continue
                broken += 1
                print(f"{path.relative_to(root)}:{number}: {target}: {why}")
    print(f"{checked} relative links in {len(files)} files, {broken} broken")
    return 1 if broken or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
