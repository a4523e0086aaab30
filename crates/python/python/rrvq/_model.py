"""A trained model: images to codes, codes to images, samples, bits per dim."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arrays import array, code_maps, image_batch
from ._native import Error

if TYPE_CHECKING:
    from .torch import Hierarchy

StrPath = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Usage:
    """How the codes of a layer are used."""

    used: int
    """Codes that were drawn at least once."""
    dead: int
    """Codes that were never drawn."""
    perplexity: float
    """Exponential of the entropy of how often each was drawn."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found, in bits a dimension; lists are by layer, bottom first."""

    bits_per_dim: float
    """Negative ELBO with hard samples."""
    reconstruction: float
    """The pixels' part of it."""
    kl: List[float]
    """Each layer's KL."""
    usage: List[Usage]
    """How each layer's codes are used; empty where latents are no codes."""
    images: int
    """Images looked at."""
    importance_bound: Optional[float] = None
    """The importance bound, where more than one sample an image was asked for."""
    embedding_size: List[float] = field(default_factory=list)
    """Root mean square of each layer's embeddings: 1 to 2 as a rule, far more where codes are out of reach; empty without embeddings."""


@dataclass(frozen=True)
class Layer:
    """The codes of a layer."""

    side: int
    """Rows, and positions of a row."""
    codes: Optional[int]
    """Codes to choose from; None where latents are no codes."""


def check_temperature(temperature: float) -> float:
    if not (math.isfinite(temperature) and temperature >= 0):
        raise Error(f"temperature={temperature} is not a temperature; give 0 or more")
    return temperature


def number(value: Optional[float]) -> float:
    """A number of a record; JSON has no NaN."""
    return math.nan if value is None else value


def check_whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or not least <= int(value) < 2**63:
        raise Error(f"{name}={value!r}; expected a whole number of at least {least}")
    return int(value)


@dataclass(frozen=True, repr=False)
class Model:
    """A model with its weights; made by `rrvq.load` and `rrvq.train`.

    >>> import rrvq
    >>> model = rrvq.load("tiles-2")
    >>> model
    <rrvq.Model 32×32×3, 9 layers, 1,055,781 parameters>
    >>> model.layers[0], model.layers[-1]
    (Layer(side=16, codes=9), Layer(side=4, codes=39))
    """

    native: _native.Model
    history: List[Dict[str, Any]] = field(default_factory=list)
    """Evaluations made while `rrvq.train` made this model, as the program's log has them."""

    def __repr__(self) -> str:
        height, width, channels = self.image_shape
        return f"<rrvq.Model {height}×{width}×{channels}, {len(self.layers)} layers, {self.parameters:,} parameters>"

    @property
    def image_shape(self) -> Tuple[int, int, int]:
        """Height, width and channels of its images."""
        return self.native.shape

    @property
    def layers(self) -> List[Layer]:
        """Its layers, bottom (largest maps) first."""
        return [Layer(side, codes) for side, codes in self.native.layers]

    @property
    def config(self) -> Dict[str, Any]:
        """All its settings: `model`, `data`, `train` and `prior`."""
        return dict(json.loads(self.native.config))

    @property
    def parameters(self) -> int:
        """How many numbers were trained."""
        return self.native.parameters

    @property
    def step(self) -> int:
        """Steps it was trained; 0 where a packed file does not say."""
        return self.native.step

    @property
    def run(self) -> Optional[Path]:
        """The folder of its run, where it has one."""
        return None if self.native.run is None else Path(self.native.run)

    def encode(self, images: Any) -> List[NDArray[np.int32]]:
        """The most likely codes of images, uint8 [n, h, w, channels].

        One int32 map [n, side, side] a layer, **bottom first**: `codes[0]` has the largest map and the details,
        `codes[-1]` the smallest map, which decides what the image is of. Images may be anything with `__array__` or
        `__dlpack__`.

        >>> import rrvq
        >>> model = rrvq.load("tiles-2")
        >>> codes = model.encode(model.sample(2))
        >>> [map.shape for map in codes][:4]
        [(2, 16, 16), (2, 16, 16), (2, 16, 16), (2, 8, 8)]
        """
        return self.native.encode(image_batch(images))

    def decode(self, codes: Sequence[Any]) -> NDArray[np.uint8]:
        """The images of codes, uint8 [n, h, w, channels].

        The lowest layers may be missing: `decode(codes[-2:])` takes the most likely codes of the prior for the rest.

        >>> import rrvq
        >>> model = rrvq.load("tiles-2")
        >>> codes = model.encode(model.sample(2))
        >>> model.decode(codes).shape, model.decode(codes[-2:]).shape
        ((2, 32, 32, 3), (2, 32, 32, 3))
        """
        return self.native.decode(code_maps(codes))

    def means(self, codes: Sequence[Any]) -> NDArray[np.float32]:
        """What `decode` gives before it is rounded: float32 [n, h, w, channels], 0 to 255."""
        return self.native.means(code_maps(codes))

    def complete(
        self, codes: Sequence[Any], seed: int = 0, temperature: float = 1.0
    ) -> List[NDArray[np.int32]]:
        """The codes of all layers, where those of the top layers are given and the prior draws the others.

        >>> import rrvq
        >>> model = rrvq.load("tiles-2")
        >>> codes = model.encode(model.sample(2))
        >>> drawn = model.complete(codes[-2:], seed=1)
        >>> len(drawn), bool((drawn[-1] == codes[-1]).all()), bool((drawn[0] == codes[0]).all())
        (9, True, False)
        """
        check_whole("seed", seed, 0)
        return self.native.complete(code_maps(codes), seed, check_temperature(temperature))

    def sample(
        self, n: int, seed: int = 0, temperature: float = 1.0, pixels: Optional[str] = None, min_p: float = 0.0
    ) -> NDArray[np.uint8]:
        """`n` images from the prior; from the PixelCNN where the model's run has one.

        The same seed gives the same images, on every machine. A temperature of 1 samples the prior as it is, 0 takes
        its most likely codes. Pixels are "means" of their distributions or "drawn" from them; drawn
        without being asked for where the model's likelihood follows earlier pixels; `min_p` leaves out components of
        a pixel's mixture whose weight is below that share of the largest.

        >>> import rrvq
        >>> images = rrvq.load("tiles-2").sample(4, seed=7, temperature=0.8)
        >>> images.shape, images.dtype.name
        ((4, 32, 32, 3), 'uint8')
        """
        n, seed = check_whole("n", n, 1), check_whole("seed", seed, 0)
        if not 0 <= min_p <= 1:
            raise Error(f"min_p={min_p}; expected a number from 0 to 1, such as 0.2")
        return self.native.sample(n, seed, check_temperature(temperature), pixels, min_p)

    def interpolate(self, first: Any, second: Any, n: int = 8, fill: bool = False) -> NDArray[np.uint8]:
        """`n` images from one image to another, both ends included, through their codes.

        Codes are exchanged position by position, the top layer first. With `fill`, layers that no exchange has reached
        yet are the prior's most likely ones instead of the first image's.

        >>> import rrvq
        >>> model = rrvq.load("tiles-2")
        >>> first, second = model.sample(2)
        >>> way = model.interpolate(first, second, n=5)
        >>> way.shape, bool((way[-1:] == model.decode(model.encode(second[None]))).all())
        ((5, 32, 32, 3), True)
        """
        n = check_whole("n", n, 2)
        ends = [image_batch(array(image)[None]) for image in (first, second)]
        if ends[0].shape != ends[1].shape:
            raise Error(f"images of {ends[0].shape[1:]} and {ends[1].shape[1:]}; both are of the model's shape")
        return self.native.interpolate(np.concatenate(ends), n, bool(fill))

    def evaluate(self, images: Any, samples: int = 1) -> Evaluation:
        """Bits per dim of images: the ELBO, KL and use of the codes by layer; with `samples` > 1 the importance bound too.

        >>> import rrvq
        >>> model = rrvq.load("tiles-2")
        >>> report = model.evaluate(model.sample(8), samples=4)
        >>> report.importance_bound < report.bits_per_dim, len(report.kl)
        (True, 9)
        """
        samples = check_whole("samples", samples, 1)
        text, bound = self.native.evaluate(image_batch(images), samples)
        record = json.loads(text)
        return Evaluation(
            bits_per_dim=number(record["bits_per_dim"]),
            reconstruction=number(record["reconstruction"]),
            kl=[number(kl) for kl in record["kl"]],
            usage=[Usage(u["used"], u["dead"], number(u["perplexity"])) for u in record["usage"]],
            images=record["images"],
            importance_bound=bound,
            embedding_size=[number(size) for size in record.get("embedding_size", [])],
        )

    def tensors(self) -> Dict[str, NDArray[np.float32]]:
        """Its parameters by name, as a run's `model.safetensors` has them."""
        return dict(self.native.tensors())

    def save(self, path: StrPath) -> None:
        """Writes the model as one small file, which `rrvq.load` reads; kernels are rounded to bfloat16."""
        self.native.save(os.fspath(path))

    def torch(self) -> "Hierarchy":
        """The model as a `torch.nn.Module` with the same weights; needs PyTorch. See `rrvq.torch`."""
        from .torch import Hierarchy

        return Hierarchy(self)


def load(model: StrPath, device: str = "cpu") -> Model:
    """Opens a model: the name of a built-in one, a run folder, or a packed file.

    `device` is "cpu", "cuda", "cuda:N" or "auto".

    >>> import rrvq
    >>> rrvq.load("tiles").image_shape
    (32, 32, 3)
    >>> rrvq.load("no/such/run")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    rrvq.Error: no/such/run is not a folder; expected the folder of a run, as training makes it, a packed model, or ...
    """
    return Model(_native.Model(os.fspath(model), device))
