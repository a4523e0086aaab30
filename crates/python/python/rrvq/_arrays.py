"""Anything that holds images or codes, as the C-contiguous arrays that the compiled part takes."""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as np
from numpy.typing import NDArray

from ._native import Error


def array(thing: Any) -> NDArray[Any]:
    """An array of NumPy, a view of anything with `__array__` or `__dlpack__`, or a list."""
    if isinstance(thing, np.ndarray):
        return thing
    if not hasattr(thing, "__array__") and hasattr(thing, "__dlpack__"):
        return np.from_dlpack(thing)
    try:
        return np.asarray(thing)
    except ValueError as error:
        raise Error(f"this is no array: {error}; give images or maps of one shape") from None


def image_batch(thing: Any) -> NDArray[np.uint8]:
    """Images as uint8 [n, h, w, channels]."""
    found = array(thing)
    if found.dtype != np.uint8 or found.ndim != 4:
        raise Error(
            f"images are {found.dtype} of shape {list(found.shape)}; expected uint8 [n, h, w, channels], values 0 to 255"
        )
    return np.ascontiguousarray(found)


def image_list(thing: Any) -> List[NDArray[np.uint8]]:
    """Images of any sizes: uint8 [h, w], [h, w, channels], a batch, or a sequence of these."""
    found = thing if isinstance(thing, (list, tuple)) else array(thing)
    if isinstance(found, np.ndarray) and found.ndim < 4:
        found = [found]
    images = []
    for one in found:
        image = array(one)
        if image.ndim == 2:
            image = image[:, :, None]
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3):
            raise Error(
                f"an image is {image.dtype} of shape {list(image.shape)}; expected uint8 [h, w], [h, w, 1] or [h, w, 3]"
            )
        images.append(np.ascontiguousarray(image))
    return images


def code_maps(codes: Sequence[Any]) -> List[NDArray[np.int32]]:
    """Maps of codes as int32 [n, side, side]."""
    maps = []
    for thing in codes:
        found = array(thing)
        if found.ndim != 3 or not np.issubdtype(found.dtype, np.integer):
            raise Error(
                f"codes are {found.dtype} of shape {list(found.shape)}; expected a list of whole numbers "
                "[n, side, side], one a layer, bottom first"
            )
        if found.size and (found.max() > np.iinfo(np.int32).max or found.min() < np.iinfo(np.int32).min):
            raise Error("codes hold a number beyond 32 bits; expected what encode gives")
        maps.append(np.ascontiguousarray(found, dtype=np.int32))
    return maps
