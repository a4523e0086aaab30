"""Codes as a data set of tokens."""

import subprocess

import numpy as np
import pytest

import rrvq
from conftest import ramps


def test_sequences_go_from_the_top_down_and_back(built_in):
    tokens = rrvq.tokens(built_in, built_in.sample(3), labels=[5, 1, 2])
    rows = tokens.sequences()
    assert rows.shape == (3, tokens.length) and rows.max() < tokens.vocabulary
    top = tokens.codes[-1].reshape(3, -1)
    assert tokens.offsets[-1] == 0 and (rows[:, : top.shape[1]] == top).all()
    # No token belongs to two layers.
    ranges = sorted(zip(tokens.offsets, tokens.sizes))
    assert all(a + size == b for (a, size), (b, _) in zip(ranges, ranges[1:]))
    back = tokens.codes_of(rows)
    assert all((a == b).all() for a, b in zip(back, tokens.codes))
    some = tokens.codes_of(rows[:, : top.shape[1]])
    assert len(some) == 1 and (some[0] == tokens.codes[-1]).all()
    assert built_in.decode(some).shape == (3, 32, 32, 3)
    for wrong, words in [(rows[:, :5], "ends inside of layer"), (rows[:, ::-1], "one lies outside"), (rows[0], "expected [n, length]")]:
        with pytest.raises(rrvq.Error) as said:
            tokens.codes_of(wrong)
        assert words in str(said.value)


def test_files_hold_everything(trained, tmp_path):
    tokens = rrvq.tokens(trained, ramps(6, 8), labels=range(6), out=tmp_path / "tokens.npz")
    again = rrvq.Tokens.load(tmp_path / "tokens.npz")
    assert again.sizes == tokens.sizes and (again.labels == np.arange(6)).all()
    assert (again.sequences() == tokens.sequences()).all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokens.npz"]
    for name, words in [("tokens.txt", "neither .npz nor .safetensors"), ("no/such.npz", "cannot write")]:
        with pytest.raises(rrvq.Error, match=words):
            tokens.save(tmp_path / name)
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(rrvq.Error, match="holds no tokens"):
        rrvq.Tokens.load(tmp_path / "bad.npz")
    with pytest.raises(rrvq.Error, match="expected one for each of 6 images"):
        rrvq.tokens(trained, ramps(6, 8), labels=range(5))


def test_the_file_is_the_program_s(program, trained, tmp_path):
    model = rrvq.train("tiny-swatches", steps=5, out=tmp_path / "run", progress=False)
    tokens = rrvq.tokens(model, split="train", count=100, out=tmp_path / "ours.safetensors", progress=False)
    assert len(tokens) == 100
    command = [program, "codes", "run", "--data", ".", "--split", "train", "--count", "100", "--out", "theirs.safetensors"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    # The order of tensors in such a file is free, but the same library wrote both.
    assert sorted((tmp_path / "ours.safetensors").read_bytes()) == sorted((tmp_path / "theirs.safetensors").read_bytes())


def test_a_split_without_images_is_named(trained):
    with pytest.raises(rrvq.Error, match="no validation images"):
        rrvq.tokens(trained, split="validation", progress=False)
    with pytest.raises(rrvq.Error, match="train, validation or test"):
        rrvq.tokens(trained, split="valid", progress=False)
