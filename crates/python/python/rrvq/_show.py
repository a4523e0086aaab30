"""Images side by side, for notebooks."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Optional

from . import _native
from ._arrays import image_batch
from ._model import StrPath, check_whole
from ._native import Error


@dataclass(frozen=True, repr=False)
class Sheet:
    """A picture of images side by side; a notebook shows it."""

    png: bytes
    """The bytes of a PNG file."""

    def __repr__(self) -> str:
        return f"<rrvq.Sheet, {len(self.png):,} bytes of PNG>"

    def _repr_png_(self) -> bytes:
        return self.png

    def save(self, path: StrPath) -> None:
        """Writes the PNG file."""
        try:
            with open(path, "wb") as file:
                file.write(self.png)
        except OSError as error:
            raise Error(f"cannot write {os.fspath(path)}: {error.strerror}") from None


def show(images: Any, columns: Optional[int] = None, scale: Optional[int] = None) -> Sheet:
    """Images, uint8 [n, h, w, channels], side by side; the last line of a notebook's cell shows them.

    >>> import rrvq
    >>> rrvq.show(rrvq.load("tiles-2").sample(8), columns=4).png[:4]
    b'\\x89PNG'
    """
    batch = image_batch(images)
    if len(batch) == 0:
        raise Error("there are no images to show; give at least one")
    wide = math.ceil(math.sqrt(len(batch))) if columns is None else check_whole("columns", columns, 1)
    return Sheet(_native.sheet(batch, wide, None if scale is None else check_whole("scale", scale, 1)))
