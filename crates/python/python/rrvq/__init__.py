"""Hierarchical discrete VAEs: train, encode, decode, sample, evaluate, compress. The same bits on every CPU.

>>> import rrvq
>>> model = rrvq.load("tiles-2")                  # a built-in name, a run folder, a packed file
>>> images = model.sample(4, seed=0, temperature=0.8)
>>> codes = model.encode(images)                  # integer maps, one a layer, bottom first
>>> back = model.decode(codes)
>>> less = model.decode(codes[-2:])               # the two top layers alone: the prior fills the rest
>>> file = rrvq.compress(images)                  # lossless
>>> bool((rrvq.decompress(file)[0] == images[0]).all())
True

Computing releases the interpreter's lock and ends at Ctrl-C; what goes wrong is an `rrvq.Error` with a sentence.
"""

import os as _os

from . import _native
from ._codec import compress, decompress
from ._model import Evaluation, Layer, Model, Usage, load
from ._native import Error, __version__
from ._show import Sheet, show
from ._tokens import Tokens, tokens
from ._train import models, presets, settings, train

if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(after_in_child=_native.forked)

# What people see is rrvq.Model, not where it is defined.
for _name in (Error, Evaluation, Layer, Model, Sheet, Tokens, Usage):
    _name.__module__ = "rrvq"
del _name

__all__ = [
    "Error",
    "Evaluation",
    "Layer",
    "Model",
    "Sheet",
    "Tokens",
    "Usage",
    "__version__",
    "compress",
    "decompress",
    "load",
    "models",
    "presets",
    "settings",
    "show",
    "tokens",
    "train",
]
