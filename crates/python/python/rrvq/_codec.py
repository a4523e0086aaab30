"""Compression of images in memory, lossless or lossy."""

from __future__ import annotations

from typing import Any, List, Optional

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arrays import image_list
from ._model import Model


QUALITIES = ("low", "medium", "high")


def compress(
    images: Any, model: Optional[Model] = None, *, lossy: bool = False, quality: Optional[str] = None
) -> bytes:
    """The bytes of a `.rrvq` file with these images, lossless; by the built-in model, or by `model`.

    Images are uint8 [h, w], [h, w, 1] or [h, w, 3] of any sizes: one of them, a sequence of them, or a batch
    [n, h, w, channels]. `rrvq decompress` reads the bytes as a file.

    With `lossy=True` pictures come back that resemble the images, from far fewer bytes. A built-in model for photographs
    writes them, one for each `quality`: "low", "medium" (the default) or "high"; a `model` has its own.

    >>> import rrvq
    >>> images = rrvq.load("tiles-2").sample(3)
    >>> file = rrvq.compress(images)
    >>> len(file) < images.size, all((a == b).all() for a, b in zip(rrvq.decompress(file), images))
    (True, True)
    >>> small = rrvq.compress(images, lossy=True, quality="low")
    >>> len(small) < len(file), rrvq.decompress(small)[0].shape
    (True, (32, 32, 3))
    """
    if quality is not None and (not lossy or model is not None):
        raise _native.Error("quality chooses the built-in model of a lossy file; give it with lossy=True and without a model")
    if quality not in (None, *QUALITIES):
        raise _native.Error(f"quality is {quality!r}; expected one of {', '.join(QUALITIES)}")
    which = QUALITIES.index(quality or "medium") if lossy else None
    return _native.compress(image_list(images), None if model is None else model.native, which)


def decompress(file: bytes, model: Optional[Model] = None) -> List[NDArray[np.uint8]]:
    """The images in the bytes of a `.rrvq` file of either kind, uint8 [h, w, 1 or 3] each.

    A file that was not written with a built-in model needs the `model` it was written with.
    """
    return _native.decompress(bytes(file), None if model is None else model.native)
