"""Training on arrays, into folders, and being stopped."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import rrvq
from conftest import ramps


def test_own_arrays_are_trained_on():
    images = ramps(300, 8)
    seen = rrvq.train("tiny-swatches", data=images, steps=150, set={"train.lr": 3e-3}, progress=False)
    unseen = rrvq.train("tiny-swatches", data=images, steps=1, progress=False)
    assert seen.step == 150 and seen.config["train"]["lr"] == 3e-3
    assert seen.config["data"]["name"] == "array"
    last = seen.history[-1]
    assert (last["split"], last["images"]) == ("validation", 30)
    assert last["bits_per_dim"] < unseen.history[-1]["bits_per_dim"] - 0.3
    with_test = rrvq.train("tiny-swatches", data=images, test=ramps(12, 8), steps=2, progress=False)
    assert (with_test.history[-1]["split"], with_test.history[-1]["images"]) == ("test", 12)


def test_a_run_folder_is_resumed_bit_for_bit(tmp_path):
    whole = rrvq.train("tiny-swatches", steps=12, out=tmp_path / "whole", progress=False)
    rrvq.train("tiny-swatches", steps=6, out=tmp_path / "parts", progress=False)
    parts = rrvq.train(resume=True, steps=12, out=tmp_path / "parts", progress=False)
    assert parts.run == tmp_path / "parts" and whole.step == parts.step == 12
    assert all((a == b).all() for a, b in zip(whole.tensors().values(), parts.tensors().values()))
    loaded = rrvq.load(tmp_path / "parts")
    assert all((a == b).all() for a, b in zip(loaded.tensors().values(), parts.tensors().values()))


def test_progress_is_printed(capsys, monkeypatch):
    # As where tqdm is not installed.
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    rrvq.train("tiny-swatches", steps=3)
    text = capsys.readouterr().out
    assert "tiny-swatches step 3: " in text and "test bits/dim" in text
    rrvq.train("tiny-swatches", steps=3, progress=False)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "options, words",
    [
        (dict(preset="tiny-swatch"), "did you mean tiny-swatches?"),
        (dict(), "give either preset"),
        (dict(preset="tiny-swatches", config="x.toml"), "give either preset"),
        (dict(preset="tiny-swatches", set={"train.rate": 1}), "there is no key train.rate"),
        (dict(preset="tiny-swatches", set={"train.lr": "fast"}), "train.lr"),
        (dict(preset="tiny-swatches", data=ramps(10, 16)), "16×16×3, but the model is made for 8×8×3"),
        (dict(preset="tiny-swatches", data=ramps(10, 8), test=ramps(2, 16)), "expected one shape"),
        (dict(preset="tiny-swatches", test=ramps(2, 8)), "test images come with an array"),
        (dict(preset="small-best-cifar10", data="no/such/folder"), "no/such/folder"),
        (dict(preset="tiny-swatches", steps=0), "steps=0; expected a whole number"),
        (dict(preset="tiny-swatches", minutes=-1), "minutes=-1"),
        (dict(resume=True), "resume=True needs the run folder"),
        (dict(preset="tiny-swatches", resume=True, out="x"), "has its settings"),
    ],
)
def test_mistakes_are_told_in_a_sentence(options, words):
    with pytest.raises(rrvq.Error) as said:
        rrvq.train(progress=False, **options)
    assert words in str(said.value)


def test_a_run_that_is_there_is_not_replaced_unasked(tmp_path):
    rrvq.train("tiny-swatches", steps=2, out=tmp_path / "run", progress=False)
    with pytest.raises(rrvq.Error, match="already holds a run"):
        rrvq.train("tiny-swatches", steps=2, out=tmp_path / "run", progress=False)
    again = rrvq.train("tiny-swatches", steps=3, out=tmp_path / "run", overwrite=True, progress=False)
    assert again.step == 3


def test_an_exception_of_the_progress_ends_training(monkeypatch):
    from rrvq import _progress

    def fail(self, what, *values):
        if what == "step":
            raise RuntimeError("enough")

    monkeypatch.setattr(_progress.Training, "__call__", fail)
    with pytest.raises(RuntimeError, match="enough"):
        rrvq.train("tiny-swatches", steps=10**6, progress=False)


WORK = {
    "train": "rrvq.train('tiny-swatches', steps=10**6, out='run', progress=False)",
    "encode": "model.encode(np.zeros((40000, 32, 32, 3), np.uint8))",
    "sample": "model.sample(40000)",
    "evaluate": "model.evaluate(np.zeros((40000, 32, 32, 3), np.uint8))",
    "compress": "rrvq.compress(np.random.default_rng(0).integers(0, 256, (20000, 32, 32, 3), np.uint8))",
}


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGINT to send to a process on Windows")
@pytest.mark.parametrize("work", WORK)
def test_ctrl_c_ends_the_work(work, tmp_path):
    script = f"""
import numpy as np, rrvq
model = rrvq.load("tiles-2")
print("begin", flush=True)
try:
    {WORK[work]}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "begin\n"
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert output == "interrupted\n"
    # Far less than the minutes that the work would have taken.
    assert time.monotonic() - begin < 60
    if work == "train":
        assert rrvq.load(tmp_path / "run").step > 0
