"""Training."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import _native
from ._arrays import image_batch
from ._model import Model, StrPath, check_whole
from ._native import Error
from ._progress import Training


def setting(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(setting(one) for one in value) + "]"
    if isinstance(value, str):
        return json.dumps(value)
    return str(value)


def changes_of(set: Optional[Mapping[str, Any]]) -> List[str]:
    return [f"{key}={setting(value)}" for key, value in (set or {}).items()]


def presets() -> Dict[str, str]:
    """The presets: name, and one line on what each is for.

    >>> import rrvq
    >>> "tiny-swatches" in rrvq.presets()
    True
    """
    return dict(_native.presets())


def models() -> Dict[str, str]:
    """The built-in models: name, and one line on what each is.

    >>> import rrvq
    >>> rrvq.models()["tiles-2"]
    "32×32 tiles of natural images, nine layers of 48 channels: the codec's own"
    """
    return dict(_native.models())


def settings(preset: str, set: Optional[Mapping[str, Any]] = None) -> Dict[str, Any]:
    """All settings of a preset, with changes.

    >>> import rrvq
    >>> rrvq.settings("tiny-swatches", {"train.lr": 1e-3})["train"]["lr"]
    0.001
    """
    return dict(json.loads(_native.settings("preset", preset, changes_of(set))))


def train(
    preset: Optional[str] = None,
    data: Any = None,
    *,
    config: Optional[StrPath] = None,
    steps: Optional[int] = None,
    set: Optional[Mapping[str, Any]] = None,
    seed: Optional[int] = None,
    test: Any = None,
    flip: bool = False,
    out: Optional[StrPath] = None,
    resume: bool = False,
    overwrite: bool = False,
    minutes: Optional[float] = None,
    device: str = "cpu",
    progress: bool = True,
) -> Model:
    """Trains a model and returns it, averaged weights.

    - `preset`, or `config`, a TOML file: the settings to start from; `set` changes single ones, `steps` and `seed` are
      short for `train.steps` and `train.seed`.
    - `data`: uint8 images [n, h, w, channels], or the folder of a data set (`data.dir`); without it, the settings' own.
      With an array, evaluations are on the images of `test`, or else on the last tenth of `data`, which is then not
      trained on; `flip=True` mirrors images at random.
    - `out`: the run folder; without it nothing is written. `resume=True` goes on from the one that is there, bit for
      bit; `overwrite=True` replaces it.
    - `minutes`: a time budget, after which it evaluates, saves and ends.

    Ctrl-C saves the run, where it has a folder, and raises KeyboardInterrupt.

    >>> import rrvq
    >>> model = rrvq.train("tiny-swatches", steps=20, progress=False)
    >>> model.step, model.history[-1]["split"]
    (20, 'test')
    >>> model = rrvq.train("tiny-swatches", data=model.sample(100), steps=5, set={"train.lr": 1e-3}, progress=False)
    >>> model.history[-1]["split"], model.history[-1]["images"]
    ('validation', 10)
    """
    if resume and out is None:
        raise Error("resume=True needs the run folder; name it with out=...")
    start = start_of(preset, config, out if resume else None)
    changes = changes_of(set)
    if steps is not None:
        changes.append(f"train.steps={check_whole('steps', steps, 1)}")
    if seed is not None:
        changes.append(f"train.seed={check_whole('seed', seed, 0)}")
    if minutes is not None and not 0 < minutes < 1e9:
        raise Error(f"minutes={minutes}; expected more than 0")
    is_folder = isinstance(data, (str, os.PathLike))
    if test is not None and (is_folder or data is None):
        raise Error("test images come with an array of training images; give both as arrays, or a folder alone")
    source: _native.Source = {
        "train": None if is_folder or data is None else image_batch(data),
        "test": None if test is None else image_batch(test),
        "folder": os.fspath(data) if is_folder else None,
        "flip": bool(flip),
    }
    output: _native.Output = {
        "out": None if out is None else os.fspath(out),
        "resume": resume,
        "overwrite": overwrite,
        "minutes": minutes,
    }
    follow = Training(preset or "training", progress)
    try:
        native = _native.train(start, changes, source, output, device, follow)
    finally:
        follow.bar.end()
    return Model(native, follow.history)


def start_of(
    preset: Optional[str], config: Optional[StrPath], run: Optional[StrPath]
) -> Tuple[str, str]:
    """Which settings to start from."""
    if run is not None:
        if preset is not None or config is not None:
            raise Error("a run that goes on has its settings; leave preset and config out, and change some with set")
        return "run", os.fspath(run)
    if (preset is None) == (config is None):
        raise Error("give either preset, the name of one (rrvq.presets() lists them), or config, a TOML file")
    return ("preset", preset) if preset is not None else ("file", os.fspath(config or ""))
