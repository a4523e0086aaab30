"""Progress that can be read in a terminal, in a notebook and in a log: tqdm where it is installed, else lines of text."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Dict, List, Optional


class Bar:
    """Counts up to a total. Silent where `show` is false."""

    def __init__(self, label: str, show: bool) -> None:
        self.label, self.show = label, show
        self.bar: Any = None
        self.done = 0
        self.last = time.monotonic()

    def begin(self, total: int, done: int = 0) -> None:
        self.total, self.done = total, done
        if not self.show:
            return
        try:
            from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            return
        self.bar = tqdm(total=total, initial=done, desc=self.label)

    def at(self, done: int, note: str = "") -> None:
        if not self.show:
            return
        if self.bar is not None:
            self.bar.set_postfix_str(note, refresh=False)
            self.bar.update(done - self.done)
        elif time.monotonic() - self.last > 5:
            self.last = time.monotonic()
            self.say(f"{self.label}: {done} of {self.total}  {note}".rstrip())
        self.done = done

    def say(self, text: str) -> None:
        if not self.show:
            return
        if self.bar is not None:
            self.bar.write(text)
        else:
            print(text, flush=True, file=sys.stdout)

    def end(self) -> None:
        if self.bar is not None:
            self.bar.close()


class Training:
    """Follows a training: what the compiled part calls."""

    def __init__(self, label: str, show: bool) -> None:
        self.bar = Bar(label, show)
        self.label = label
        self.history: List[Dict[str, Any]] = []

    def __call__(self, what: str, *values: Any) -> None:
        if what == "started":
            parameters, done, total = values
            self.bar.say(f"{self.label}: {parameters:,} parameters, {total} steps")
            self.bar.begin(total, done)
        elif what == "step":
            step, loss = values
            self.bar.at(step, f"{loss:.3f} bits/dim")
        elif what == "evaluated":
            record = json.loads(values[0])
            self.history.append(record)
            self.bar.say(
                f"{self.label} step {record['step']}: {record['bits_per_dim']:.4f} {record['split']} bits/dim "
                f"({record['reconstruction']:.4f} reconstruction + {sum(record['kl']):.4f} KL)"
            )


def counter(label: str, show: bool) -> Any:
    """A function of (done, total), and what ends it."""
    bar = Bar(label, show)
    begun: Optional[int] = None

    def listen(done: int, total: int) -> None:
        nonlocal begun
        if begun is None:
            begun = total
            bar.begin(total)
        bar.at(done)

    return listen, bar.end
