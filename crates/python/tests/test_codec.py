"""Compression in memory."""

import subprocess

import numpy as np
import pytest

import rrvq
from conftest import ramps


def test_images_of_all_sizes_come_back(built_in):
    images = [ramps(1, 40)[0], ramps(1, 33)[0, :20], ramps(1, 16, 1)[0], ramps(1, 16, 1)[0, :, :, 0]]
    back = rrvq.decompress(rrvq.compress(images))
    assert [image.shape for image in back] == [(40, 40, 3), (20, 33, 3), (16, 16, 1), (16, 16, 1)]
    for one, other in zip(images, back):
        assert (one.reshape(other.shape) == other).all()
    alone = ramps(1, 40)[0]
    assert (rrvq.decompress(rrvq.compress(alone))[0] == alone).all()
    samples = built_in.sample(8)
    assert len(rrvq.compress(samples)) < samples.size / 2


def test_a_model_of_ones_own_compresses(trained):
    images = ramps(5, 8)
    file = rrvq.compress(images, trained)
    assert (np.array(rrvq.decompress(file, trained)) == images).all()
    with pytest.raises(rrvq.Error, match="cannot decompress these bytes"):
        rrvq.decompress(file, rrvq.load("tiles-2"))


def test_lossy_files_are_smaller_and_better_ones_larger(trained, program, tmp_path):
    noise = np.random.default_rng(0)

    def grainy(image):
        return np.clip(image + noise.normal(0, 15, image.shape), 0, 255).astype(np.uint8)

    images = [grainy(ramps(1, 40)[0]), grainy(ramps(1, 96)[0, :50]), grainy(ramps(1, 33, 1)[0])]
    files = [rrvq.compress(images, lossy=True, quality=quality) for quality in ("low", "medium", "high")]
    error = []
    for file in files:
        assert len(file) < len(rrvq.compress(images))
        back = rrvq.decompress(file)
        assert [image.shape for image in back] == [image.shape for image in images]
        error.append(sum(((a.astype(float) - b) ** 2).sum() for a, b in zip(images, back)))
    assert error[2] < error[0]
    assert rrvq.compress(images, lossy=True) == files[1]
    (tmp_path / "file.rrvq").write_bytes(files[1])
    subprocess.run([program, "decompress", "file.rrvq", "-o", "out"], cwd=tmp_path, check=True, capture_output=True)
    assert len(list((tmp_path / "out").glob("*.png"))) == 3
    own = rrvq.compress(ramps(5, 8), trained, lossy=True)
    assert len(rrvq.decompress(own, trained)) == 5
    with pytest.raises(rrvq.Error, match="not built in"):
        rrvq.decompress(own)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda: rrvq.compress(np.zeros((4, 4, 4, 4), np.uint8)), "expected uint8 [h, w], [h, w, 1] or [h, w, 3]"),
        (lambda: rrvq.compress(np.zeros((4, 4))), "an image is float64"),
        (lambda: rrvq.compress(np.zeros((0, 4), np.uint8)), "no image of 4×0 pixels"),
        (lambda: rrvq.compress(ramps(1, 8), lossy=True, quality="best"), "expected one of low, medium, high"),
        (lambda: rrvq.compress(ramps(1, 8), quality="low"), "give it with lossy=True"),
        (lambda: rrvq.decompress(b"nothing at all"), "cannot decompress these bytes: "),
        (lambda: rrvq.decompress(rrvq.compress(ramps(1, 8))[:-9]), "cannot decompress these bytes: "),
    ],
)
def test_mistakes_are_told_in_a_sentence(wrong, words):
    with pytest.raises(rrvq.Error) as said:
        wrong()
    assert words in str(said.value)


def test_the_program_reads_the_bytes(program, tmp_path):
    images = ramps(2, 32)
    (tmp_path / "file.rrvq").write_bytes(rrvq.compress(images))
    subprocess.run([program, "decompress", "file.rrvq", "-o", "out"], cwd=tmp_path, check=True, capture_output=True)
    files = sorted((tmp_path / "out").glob("*.png"))
    assert len(files) == 2
    subprocess.run([program, "compress", *map(str, files), "-o", "back.rrvq"], cwd=tmp_path, check=True, capture_output=True)
    back = rrvq.decompress((tmp_path / "back.rrvq").read_bytes())
    assert (np.array(back) == images).all()
