"""The codes of many images as a data set of tokens, for another model to learn."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import numpy as np
from numpy.typing import NDArray

from ._arrays import code_maps, image_batch
from ._model import Model, StrPath, check_whole
from ._native import Error
from ._progress import counter


@dataclass(frozen=True, repr=False)
class Tokens:
    """The codes of images, by layer and as one sequence an image.

    >>> import rrvq
    >>> model = rrvq.load("tiles-2")
    >>> tokens = rrvq.tokens(model, model.sample(3))
    >>> tokens
    <rrvq.Tokens of 3 images: 9 layers, sequences of 1008 out of a vocabulary of 249>
    >>> again = tokens.codes_of(tokens.sequences())
    >>> all((a == b).all() for a, b in zip(again, tokens.codes))
    True
    """

    codes: List[NDArray[np.int32]]
    """One map [n, side, side] a layer, bottom first."""
    sizes: List[int]
    """Codes to choose from in each layer, bottom first."""
    labels: Optional[NDArray[np.int32]] = None
    """The class of each image, where it is known."""
    model: Optional[Model] = None
    """The model they are of."""

    def __repr__(self) -> str:
        return (
            f"<rrvq.Tokens of {len(self)} images: {len(self.codes)} layers, sequences of {self.length} "
            f"out of a vocabulary of {self.vocabulary}>"
        )

    def __len__(self) -> int:
        return len(self.codes[0])

    @property
    def length(self) -> int:
        """Tokens of an image."""
        return sum(map[0].size if len(map) else 0 for map in self.codes)

    @property
    def vocabulary(self) -> int:
        """Tokens to choose from: the codes of all layers."""
        return sum(self.sizes)

    @property
    def offsets(self) -> List[int]:
        """What is added to the codes of each layer, bottom first, so that no two layers share a token."""
        above = np.cumsum([0] + self.sizes[::-1])[:-1]
        return [int(offset) for offset in above[::-1]]

    def sequences(self) -> NDArray[np.int32]:
        """One row an image, int32 [n, length]: the top layer first, each layer row by row.

        So everything that a token depends on in the model stands before it.
        """
        rows = [map.reshape(len(self), -1) + offset for map, offset in zip(self.codes, self.offsets)]
        joined: NDArray[np.int32] = np.concatenate(rows[::-1], axis=1).astype(np.int32)
        return joined

    def codes_of(self, sequences: Any) -> List[NDArray[np.int32]]:
        """Such rows, made by another model perhaps, as maps that `Model.decode` takes.

        Rows may end early, after any layer: `Model.decode` fills the rest.
        """
        rows = np.asarray(sequences)
        if rows.ndim != 2:
            raise Error(f"sequences have the shape {list(rows.shape)}; expected [n, length]")
        maps: List[NDArray[np.int32]] = []
        place, length = 0, rows.shape[1]
        for layer in reversed(range(len(self.codes))):
            if place == length and maps:
                break
            side, size, offset = self.codes[layer].shape[1], self.sizes[layer], self.offsets[layer]
            if place + side * side > length:
                raise Error(f"sequences have {length} tokens, which ends inside of layer {layer + 1}; end after a layer")
            part = rows[:, place : place + side * side] - offset
            if part.size and not (0 <= part.min() and part.max() < size):
                raise Error(
                    f"tokens {place} to {place + side * side} are of layer {layer + 1}, whose tokens are "
                    f"{offset} to {offset + size - 1}; one lies outside"
                )
            maps.insert(0, part.reshape(-1, side, side).astype(np.int32))
            place += side * side
        if place < length:
            raise Error(f"sequences have {length} tokens; expected at most {place}")
        return maps

    def save(self, path: StrPath) -> None:
        """Writes a `.npz` file (`layer.1`, … bottom first, `sizes`, `sequences`, `labels`) or, where the name ends in
        `.safetensors`, the file that `rrvq codes` writes and `rrvq decode` reads."""
        name = os.fspath(path)
        if name.endswith(".safetensors"):
            if self.model is None:
                raise Error(f"{name}: these tokens were read from a file; save them as .npz, or make them again")
            labels = None if self.labels is None else [int(label) for label in self.labels]
            self.model.native.save_codes(name, self.codes, labels)
            return
        if not name.endswith(".npz"):
            raise Error(f"{name} ends in neither .npz nor .safetensors; expected one of these for tokens")
        arrays: Dict[str, Any] = {f"layer.{i + 1}": map for i, map in enumerate(self.codes)}
        arrays["sizes"] = np.array(self.sizes, dtype=np.int32)
        arrays["sequences"] = self.sequences()
        if self.labels is not None:
            arrays["labels"] = self.labels
        # Whole or absent: a reader never sees half a file.
        unfinished = f"{name}.{os.getpid()}.rrvq-tmp"
        try:
            with open(unfinished, "wb") as file:
                np.savez_compressed(file, **arrays)
            os.replace(unfinished, name)
        except OSError as error:
            raise Error(f"cannot write {name}: {error.strerror}") from None
        finally:
            if os.path.exists(unfinished):
                os.remove(unfinished)

    @staticmethod
    def load(path: StrPath) -> "Tokens":
        """Reads a `.npz` file that `save` wrote."""
        name = os.fspath(path)
        try:
            with np.load(name, allow_pickle=False) as file:
                sizes = [int(size) for size in file["sizes"]]
                codes = code_maps([file[f"layer.{i + 1}"] for i in range(len(sizes))])
                labels = file["labels"] if "labels" in file else None
        except OSError as error:
            raise Error(f"cannot read {name}: {error.strerror or error}") from None
        except Exception as error:
            raise Error(f"{name} holds no tokens: {error}; expected a .npz file of Tokens.save") from None
        return Tokens(codes, sizes, labels)


def tokens(
    model: Model,
    data: Any = None,
    *,
    split: str = "train",
    count: int = 0,
    labels: Any = None,
    out: Optional[StrPath] = None,
    progress: bool = True,
) -> Tokens:
    """The codes of images as a data set of tokens; written to `out`, a `.npz` or `.safetensors` file, where that is given.

    `data` is uint8 images [n, h, w, channels], with `labels` if there are some, or the folder of a data set, of which
    the first `count` images of `split` are taken (0 takes all), with its own labels; without `data`, the data set that
    the model was trained on.

    >>> import rrvq
    >>> model = rrvq.load("tiles-2")
    >>> tokens = rrvq.tokens(model, model.sample(3))
    >>> tokens.sequences().shape, tokens.codes[-1].shape
    ((3, 1008), (3, 4, 4))
    """
    sizes = [layer.codes for layer in model.layers if layer.codes is not None]
    if data is None or isinstance(data, (str, os.PathLike)):
        if labels is not None:
            raise Error("labels come with an array of images; a data set has its own")
        folder = None if data is None else os.fspath(data)
        listen, end = counter("encoding", progress)
        try:
            codes, found = model.native.encode_data(folder, split, check_whole("count", count, 0), listen)
        finally:
            end()
        classes = None if found is None else np.array(found, dtype=np.int32)
    else:
        images = image_batch(data)
        codes = model.encode(images[:count] if count else images)
        classes = None if labels is None else np.asarray(labels, dtype=np.int32)[: len(codes[0])]
        if classes is not None and classes.shape != (len(codes[0]),):
            raise Error(f"labels have the shape {list(classes.shape)}; expected one for each of {len(codes[0])} images")
    made = Tokens(codes, sizes, classes, model)
    if out is not None:
        made.save(out)
    return made
