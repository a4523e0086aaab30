"""Loading, encoding, decoding, sampling, evaluating."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import rrvq
from conftest import ramps


def test_codes_are_maps_bottom_first_and_decode_to_images(trained):
    images = ramps(70, 8)
    codes = trained.encode(images)
    assert [(m.shape, m.dtype) for m in codes] == [((70, 4, 4), np.int32), ((70, 2, 2), np.int32)]
    assert [layer.side for layer in trained.layers] == [4, 2]
    for layer, map in zip(trained.layers, codes):
        assert 0 <= map.min() and map.max() < layer.codes
    back = trained.decode(codes)
    assert back.shape == images.shape and back.dtype == np.uint8
    # A batch does not decide what an image's codes are.
    assert all((few == all[3:5]).all() for few, all in zip(trained.encode(images[3:5]), codes))
    means = trained.means(codes)
    assert means.dtype == np.float32 and (np.floor(means + 0.5).astype(np.uint8) == back).all()


def test_the_prior_fills_missing_layers(built_in):
    images = built_in.sample(3, seed=2)
    codes = built_in.encode(images)
    filled = built_in.complete(codes[-4:], temperature=0)
    assert (built_in.decode(codes[-4:]) == built_in.decode(filled)).all()
    assert (filled[-4] == codes[-4]).all() and (filled[0] != codes[0]).any()
    one, same, other = (built_in.complete(codes[-1:], seed=seed) for seed in (1, 1, 2))
    assert (one[0] == same[0]).all() and (one[0] != other[0]).any()


def test_a_way_leads_from_one_image_to_another(built_in):
    first, second = built_in.sample(2, seed=3)
    shown = built_in.decode(built_in.encode(np.stack([first, second])))
    way = built_in.interpolate(first, second, n=6)
    assert way.shape == (6, *built_in.image_shape) and way.dtype == np.uint8
    assert (way[[0, -1]] == shown).all() and (way[2] != way[0]).any()
    # Filled by the prior, the layers not reached yet are not the first image's.
    assert (built_in.interpolate(first, second, n=6, fill=True)[1] != way[1]).any()


def test_samples_depend_on_seed_and_temperature(built_in):
    first = built_in.sample(2, seed=1)
    assert (first == built_in.sample(2, seed=1)).all()
    assert (first != built_in.sample(2, seed=2)).any()
    cold = built_in.sample(2, seed=1, temperature=0)
    assert (cold[0] == cold[1]).all()
    drawn = built_in.sample(2, seed=1, pixels="drawn")
    assert (drawn != first).any() and (drawn == built_in.sample(2, seed=1, pixels="drawn")).all()
    assert (drawn != built_in.sample(2, seed=1, pixels="drawn", min_p=0.5)).any()


def test_evaluation_is_that_of_training(trained):
    report = trained.evaluate(ramps(40, 8), samples=8)
    assert report.images == 40 and len(report.kl) == len(report.usage) == 2
    assert report.bits_per_dim == pytest.approx(report.reconstruction + sum(report.kl))
    assert report.importance_bound < report.bits_per_dim
    layer, usage = trained.layers[0], report.usage[0]
    assert usage.used + usage.dead == layer.codes and 1 <= usage.perplexity <= layer.codes
    assert len(report.embedding_size) == 2 and all(0 < size < 20 for size in report.embedding_size)
    assert trained.evaluate(ramps(40, 8)).importance_bound is None


def test_anything_that_is_an_array_is_taken(trained):
    images = ramps(3, 8)
    expected = trained.encode(images)

    class Array:
        def __array__(self, dtype=None, copy=None):
            return images

    class Dlpack:
        def __dlpack__(self, **options):
            return images.__dlpack__(**options)

        def __dlpack_device__(self):
            return images.__dlpack_device__()

    backwards = np.ascontiguousarray(images[:, :, ::-1])[:, :, ::-1]
    for thing in (Array(), Dlpack(), backwards, np.asfortranarray(images)):
        assert all((a == b).all() for a, b in zip(trained.encode(thing), expected))
    lists = [map.astype(np.int64).tolist() for map in expected]
    assert (trained.decode(lists) == trained.decode(expected)).all()


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda m: m.encode(np.zeros((2, 8, 8, 3))), "float64 of shape [2, 8, 8, 3]; expected uint8"),
        (lambda m: m.encode(np.zeros((8, 8, 3), np.uint8)), "expected uint8 [n, h, w, channels]"),
        (lambda m: m.encode(ramps(2, 16)), "2 images of 16×16×3; the model takes one or more of 8×8×3"),
        (lambda m: m.encode(ramps(2, 8, 1)), "8×8×1"),
        (lambda m: m.encode(ramps(0, 8)), "there are 0 images"),
        (lambda m: m.decode([]), "0 maps of codes; expected those of all 2 layers"),
        (lambda m: m.decode([np.zeros((1, 2, 2), int)] * 3), "3 maps of codes"),
        (lambda m: m.decode([np.zeros((1, 2), int)]), "expected a list of whole numbers"),
        (lambda m: m.decode([np.zeros((1, 2, 2))]), "float64 of shape"),
        (lambda m: m.decode([np.zeros((1, 2, 4), int)]), "expected [1, side, side]"),
        (lambda m: m.decode([np.zeros((1, 4, 4), int)]), "where layer 2 of 2×2 is expected"),
        (lambda m: m.decode([np.full((1, 2, 2), -3)]), "layer 2 holds code -3"),
        (lambda m: m.decode([np.full((1, 2, 2), 9999)]), "layer 2 holds code 9999, but has"),
        (lambda m: m.decode([np.full((1, 2, 2), 2**40)]), "beyond 32 bits"),
        (lambda m: m.decode([np.zeros((2, 4, 4), int), np.zeros((1, 2, 2), int)]), "expected [2, side, side]"),
        (lambda m: m.sample(0), "n=0; expected a whole number of at least 1"),
        (lambda m: m.sample(1, min_p=2), "min_p=2; expected a number from 0 to 1"),
        (lambda m: m.sample(1, pixels="modes"), '"modes" cannot be shown of pixels; expected "means" or "drawn"'),
        (lambda m: m.sample(2.5), "n=2.5; expected a whole number"),
        (lambda m: m.sample(1, seed=-1), "seed=-1; expected a whole number"),
        (lambda m: m.sample(1, temperature=float("nan")), "temperature=nan is not a temperature"),
        (lambda m: m.interpolate(ramps(1, 8), ramps(1, 8)), "expected uint8 [n, h, w, channels]"),
        (lambda m: m.interpolate(ramps(1, 8)[0], ramps(1, 16)[0]), "both are of the model's shape"),
        (lambda m: m.interpolate(*ramps(2, 16)), "2 images of 16×16×3"),
        (lambda m: m.interpolate(*ramps(2, 8), n=1), "n=1; expected a whole number of at least 2"),
        (lambda m: m.evaluate(ramps(1, 8), samples=0), "samples=0; expected a whole number"),
        (lambda m: rrvq.load("tiles-2", device="abacus"), "device \"abacus\" cannot be used"),
        (lambda m: rrvq.show(ramps(0, 8)), "no images to show"),
    ],
)
def test_mistakes_are_told_in_a_sentence(trained, wrong, words):
    with pytest.raises(rrvq.Error) as said:
        wrong(trained)
    assert words in str(said.value)


def test_a_packed_file_is_the_same_model(trained, tmp_path):
    trained.save(tmp_path / "model.safetensors")
    again = rrvq.load(tmp_path / "model.safetensors")
    # Kernels are rounded once: packing again changes nothing.
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "model.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    assert again.config["model"] == trained.config["model"] and again.layers == trained.layers
    assert set(again.tensors()) == set(trained.tensors())
    (tmp_path / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(rrvq.Error, match="is not a packed model"):
        rrvq.load(tmp_path / "model.safetensors")


def test_other_threads_go_on_while_it_computes(built_in):
    images = built_in.sample(64)
    built_in.encode(images)
    work = threading.Thread(target=lambda: built_in.encode(np.concatenate([images] * 8)))
    ticks = 0
    work.start()
    while work.is_alive():
        time.sleep(0.001)
        ticks += 1
    # Were the lock held, this thread would have run before and after, and not in between.
    assert ticks > 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_says_so_instead_of_waiting_forever(trained):
    script = """
import os, rrvq
rrvq.load("tiles").sample(1)
if os.fork() == 0:
    try:
        rrvq.load("tiles")
    except rrvq.Error as error:
        os.write(1, str(error).encode())
    os._exit(0)
os.wait()
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert "was forked from one that had computed" in found.stdout, found


def test_two_threads_get_what_one_gets(trained):
    images = ramps(200, 8)
    expected = trained.encode(images)
    found = [None] * 4
    threads = [threading.Thread(target=lambda i=i: found.__setitem__(i, trained.encode(images))) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for codes in found:
        assert all((a == b).all() for a, b in zip(codes, expected))


def test_a_sheet_is_a_picture(trained, tmp_path):
    sheet = rrvq.show(ramps(6, 8), columns=3, scale=2)
    sheet.save(tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").read_bytes() == sheet._repr_png_()
    with pytest.raises(rrvq.Error, match="cannot write"):
        sheet.save(tmp_path / "no" / "sheet.png")
