"""Lossless compression of images in memory."""

from __future__ import annotations

from typing import Any, List, Optional

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arrays import image_list
from ._model import Model


def compress(images: Any, model: Optional[Model] = None) -> bytes:
    """The bytes of a `.rrvq` file with these images, lossless; by the built-in model, or by `model`.

    Images are uint8 [h, w], [h, w, 1] or [h, w, 3] of any sizes: one of them, a sequence of them, or a batch
    [n, h, w, channels]. `rrvq decompress` reads the bytes as a file.

    >>> import rrvq
    >>> images = rrvq.load("tiles-2").sample(3)
    >>> file = rrvq.compress(images)
    >>> len(file) < images.size, all((a == b).all() for a, b in zip(rrvq.decompress(file), images))
    (True, True)
    """
    return _native.compress(image_list(images), None if model is None else model.native)


def decompress(file: bytes, model: Optional[Model] = None) -> List[NDArray[np.uint8]]:
    """The images in the bytes of a `.rrvq` file, uint8 [h, w, 1 or 3] each.

    A file that was not written with a built-in model needs the `model` it was written with.
    """
    return _native.decompress(bytes(file), None if model is None else model.native)
