"""The model in PyTorch beside ours."""

import inspect
import warnings

import numpy as np
import pytest

import rrvq
from conftest import ramps

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

# What the networks can be made of, a little of each.
SYSTEMS = {
    "plain": {},
    "nearest-grow": {"model.grow": "nearest", "model.border": "edge", "model.ladder_blocks": 1, "model.blocks": 2},
    "direct": {"model.prior": "direct", "model.sigma": "one", "model.top": "learnt"},
    "isotropic": {"model.sigma": "isotropic", "model.block_scale": "depth", "model.repeat": 2},
    "mixture": {"model.likelihood": "mixture", "model.mixtures": 3},
    "causal": {"model.likelihood": "mixture-causal", "model.mixtures": 3},
    "vq": {"model.latent": "nearest", "model.top": "uniform", "model.maps": [4], "model.likelihood": "logistic-channel"},
    "fsq": {"model.latent": "fsq", "model.options.levels": [5, 4]},
    "mlp": {"model.backbone": "mlp", "model.likelihood": "logistic"},
    "small-maps": {"model.maps": [2, 1]},
}


def to_torch(images):
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def from_torch(means):
    return means.detach().numpy().transpose(0, 2, 3, 1)


@pytest.fixture(scope="module", params=[*SYSTEMS, "tiles-2", "tiles"])
def pair(request):
    if request.param in SYSTEMS:
        model = rrvq.train("tiny-swatches", ramps(200, 8), steps=30, set=SYSTEMS[request.param], progress=False)
        return model, ramps(24, 8)
    model = rrvq.load(request.param)
    return model, np.concatenate([model.sample(6), ramps(6, 32)])


def test_means_are_within_a_hundred_thousandth(pair):
    model, images = pair
    codes = model.encode(images)
    with torch.no_grad():
        means = from_torch(model.torch().decode([torch.from_numpy(map) for map in codes]))
    assert np.abs(means - model.means(codes)).max() / 255 < 1e-5


def test_the_prior_fills_the_same_layers(pair):
    model, images = pair
    top = model.encode(images)[-1:]
    net = model.torch()
    if len(model.layers) == 1:
        pytest.skip("a model of one layer has none to fill")
    ours = model.complete(top, temperature=0)
    with torch.no_grad():
        # Layer by layer with our codes above: an argmax between equals would change everything below.
        d = net.top.expand(len(images), -1, -1, -1)
        for i in reversed(range(len(net.layers))):
            if i < len(net.layers) - 1:
                scores = net.layers[i].prior(d)
                ours_here = scores.gather(1, torch.from_numpy(ours[i]).long().reshape(-1, 1))
                assert (scores.max(1, keepdim=True).values - ours_here).max() < 1e-4 * (1 + scores.abs().max())
            d = net.layers[i].below(d, torch.from_numpy(ours[i]))


def test_codes_are_the_most_likely_ones(pair):
    model, images = pair
    codes = model.encode(images)
    net = model.torch()
    with torch.no_grad():
        scores, _ = net.posteriors(to_torch(images), [torch.from_numpy(map) for map in codes])
        found = net.encode(to_torch(images))
    for ours, score in zip(codes, scores):
        ours = torch.from_numpy(ours).long()
        best = score.max(-1).values
        behind = best - score.gather(-1, ours[..., None])[..., 0]
        assert behind.max() < 1e-5 * (1 + score.abs().max())
        assert (score.argmax(-1) == ours).float().mean() > 0.99
    same = np.mean([(f.numpy() == c).mean() for f, c in zip(found, codes)])
    assert same > 0.95


def test_latents_without_codes_are_refused():
    model = rrvq.train("tiny-swatches", steps=1, set={"model.latent": "gaussian"}, progress=False)
    with pytest.raises(rrvq.Error, match='model.latent is "gaussian" is not written in PyTorch'):
        model.torch()


def test_onnx_gives_the_same(built_in, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    images = np.concatenate([built_in.sample(3), ramps(1, 32)])
    codes = built_in.encode(images)
    net = built_in.torch()
    maps = tuple(torch.from_numpy(map).long() for map in codes)
    names = [f"layer.{i + 1}" for i in range(len(maps))]
    batch = {0: "n"}
    # Newer ones have a second exporter, which needs another package.
    known = inspect.signature(torch.onnx.export).parameters
    options = {"opset_version": 14, **({"dynamo": False} if "dynamo" in known else {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net.decoder(), maps, str(tmp_path / "decoder.onnx"), input_names=names, output_names=["means"],
            dynamic_axes={name: batch for name in [*names, "means"]}, **options,
        )
        torch.onnx.export(
            net.encoder(), (to_torch(images),), str(tmp_path / "encoder.onnx"), input_names=["images"],
            output_names=names, dynamic_axes={name: batch for name in [*names, "images"]}, **options,
        )
    session = runtime.InferenceSession(str(tmp_path / "decoder.onnx"), providers=["CPUExecutionProvider"])
    # Of another number of images than it was exported with.
    feed = {name: map[:2].numpy() for name, map in zip(names, maps)}
    (means,) = session.run(None, feed)
    assert np.abs(means.transpose(0, 2, 3, 1) - built_in.means([map[:2] for map in codes])).max() / 255 < 1e-5
    session = runtime.InferenceSession(str(tmp_path / "encoder.onnx"), providers=["CPUExecutionProvider"])
    found = session.run(None, {"images": to_torch(images)[:2].numpy()})
    same = np.mean([(f == c[:2]).mean() for f, c in zip(found, codes)])
    assert same > 0.95
