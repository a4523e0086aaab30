"""The model in PyTorch, with the weights of a trained one: to build on, to run where PyTorch runs, to export as ONNX.

    net = rrvq.load("tiles-2").torch()
    codes = net.encode(images)                    # [n, channels, h, w], 0 to 255 -> maps, one a layer, bottom first
    means = net.decode(codes)                     # means of the pixels, 0 to 255
    torch.onnx.export(net.decoder(), tuple(codes), "decoder.onnx")

It is written for inference: weight normalisation is folded into the kernels, codes are the most likely ones. Means agree
with `Model.means` to 1e-5 of their range. Codes are an argmax: where two are as likely to the last bits, PyTorch, whose
sums depend on the machine, may take the other one; for files and for exact results there is `Model.encode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Type, cast

import numpy as np

from ._native import Error

try:
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn
except ImportError as error:
    raise Error(f"model.torch() needs PyTorch, which cannot be imported: {error}; pip install torch") from None

if TYPE_CHECKING:
    from ._model import Model

Weights = Dict[str, Tensor]


class Conv(nn.Module):
    """A convolution whose kernel is g · v / ‖v‖ for each output channel; `grows` doubles the sides of its map."""

    def __init__(self, weights: Weights, name: str, stride: int = 1, grows: str = "", border: str = "zero") -> None:
        super().__init__()
        v, g, b = (weights[f"{name}.{part}"] for part in "vgb")
        self.transposed = grows == "transposed"
        # [k, k, in, out], but [k, k, out, in] where it is transposed.
        out = 2 if self.transposed else 3
        norm = (v.double() ** 2).sum(dim=[axis for axis in range(4) if axis != out], keepdim=True) + 1e-12
        gain = g.double().view([-1 if axis == out else 1 for axis in range(4)])
        kernel = (v * gain / norm.sqrt()).float()
        # Both become what PyTorch wants: [out, in, k, k], or [in, out, k, k] where it is transposed.
        self.kernel = nn.Parameter(kernel.permute(3, 2, 0, 1).contiguous())
        self.bias = nn.Parameter(b.clone())
        self.stride, self.nearest, self.edge = stride, grows == "nearest", border == "edge"
        self.padding = v.shape[0] // 2

    def forward(self, x: Tensor) -> Tensor:
        if self.transposed:
            return F.conv_transpose2d(x, self.kernel, self.bias, stride=2, padding=1, output_padding=1)
        if self.nearest:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        if self.edge and self.padding:
            x = F.pad(x, (self.padding,) * 4, mode="replicate")
            return F.conv2d(x, self.kernel, self.bias, stride=self.stride)
        return F.conv2d(x, self.kernel, self.bias, stride=self.stride, padding=self.padding)


class Block(nn.Module):
    """x + s · conv(ELU(conv(ELU(x)))); where the map changes, the identity is averaged down or repeated up."""

    def __init__(self, weights: Weights, name: str, factor: float, resize: str, grow: str) -> None:
        super().__init__()
        self.a = Conv(weights, f"{name}.a", 2 if resize == "down" else 1, grow if resize == "up" else "")
        self.b = Conv(weights, f"{name}.b")
        self.factor, self.resize = factor, resize

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.b(F.elu(self.a(F.elu(x)))) * self.factor
        if self.resize == "down":
            x = F.avg_pool2d(x, 2)
        if self.resize == "up":
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        return x + h


def rows(x: Tensor, width: int) -> Tensor:
    """A map as one row of `width` numbers for each image and position."""
    return x.permute(0, 2, 3, 1).reshape(-1, width)


class Latent(nn.Module):
    """The codes of a layer: scores of all of them, and the vector that each stands for."""

    width: int
    prior_width: int
    mean: Tensor

    def __init__(self, weights: Weights, name: str, config: Dict[str, Any]) -> None:
        super().__init__()

    def posterior(self, e: Tensor) -> Tensor:
        raise NotImplementedError

    def prior(self, numbers: Tensor) -> Tensor:
        raise NotImplementedError


class Responsibilities(Latent):
    """Codes by their responsibilities: −½ Σ_d [(e_d − μ_kd)² / σ²_kd + log σ²_kd], up to what all codes share."""

    def __init__(self, weights: Weights, name: str, config: Dict[str, Any]) -> None:
        super().__init__(weights, name, config)
        mean = weights[f"{name}.mean"]
        logvar = weights.get(f"{name}.logvar", torch.zeros(1, 1)).expand_as(mean)
        inverse = (-logvar).exp()
        self.mean = nn.Parameter(mean.clone())
        self.linear = nn.Parameter((mean * inverse).T.contiguous())
        self.square = nn.Parameter(inverse.T.contiguous())
        self.constant = nn.Parameter((mean**2 * inverse + logvar).sum(-1))
        self.width = mean.shape[1]
        self.direct = config["prior"] == "direct"
        self.prior_width = mean.shape[0] if self.direct else self.width

    def posterior(self, e: Tensor) -> Tensor:
        return e @ self.linear - 0.5 * (e**2 @ self.square) - 0.5 * self.constant

    def prior(self, numbers: Tensor) -> Tensor:
        return numbers if self.direct else self.posterior(numbers)


class Nearest(Latent):
    """The nearest code of a codebook, all of them equally likely a priori."""

    prior_width = 0

    def __init__(self, weights: Weights, name: str, config: Dict[str, Any]) -> None:
        super().__init__(weights, name, config)
        self.mean = nn.Parameter(weights[f"{name}.mean"].clone())
        self.width = self.mean.shape[1]

    def posterior(self, e: Tensor) -> Tensor:
        return e @ self.mean.T - 0.5 * (self.mean**2).sum(-1)


class Scalars(Latent):
    """A few numbers in [−1, 1], each rounded to one of some levels; codes are all combinations, the last the fastest."""

    def __init__(self, weights: Weights, name: str, config: Dict[str, Any]) -> None:
        super().__init__(weights, name, config)
        levels = config.get("options", {}).get("levels", [8, 8, 4])
        values = [torch.linspace(-1, 1, count) for count in levels]
        grid = torch.stack(torch.meshgrid(*values, indexing="ij"), dim=-1)
        self.mean = nn.Parameter(grid.reshape(-1, len(levels)))
        self.width = len(levels)
        self.prior_width = 2 * self.width

    def posterior(self, e: Tensor) -> Tensor:
        return e.tanh() @ self.mean.T - 0.5 * (self.mean**2).sum(-1)

    def prior(self, numbers: Tensor) -> Tensor:
        mean, log_precision = numbers.chunk(2, dim=1)
        precision = log_precision.clamp(-6, 6).exp()
        return 2 * (mean * precision) @ self.mean.T - precision @ (self.mean**2).T


LATENTS: Dict[str, Type[Latent]] = {"code": Responsibilities, "nearest": Nearest, "fsq": Scalars}


class Layer(nn.Module):
    """The codes of a layer, and the networks around them."""

    def __init__(self, weights: Weights, index: int, sizes: Tuple[int, int], grow: str, factor: float, config: Dict[str, Any]) -> None:
        super().__init__()
        name = f"layer.{index + 1}"
        self.side, self.features = sizes
        self.codes = LATENTS[config["latent"]](weights, f"{name}.codes", config)
        blocks = config["ladder_blocks"]

        def around(which: str, grows: str) -> nn.ModuleList:
            """The convolution of a ladder or strap, and the blocks on its backbone's side."""
            some = [Block(weights, f"{name}.{which}.blocks.{i}", factor, "same", grow) for i in range(blocks)]
            return nn.ModuleList([nn.Sequential(*some), Conv(weights, f"{name}.{which}", grows=grows)])

        grows = grow if sizes[1] > config["features_above"] else ""
        self.qladder, self.qstrap, self.pladder = around("qladder", ""), around("qstrap", grows), around("pladder", "")
        self.pstrap = around("pstrap", grows) if f"{name}.pstrap.v" in weights else None
        some = [Block(weights, f"dec.{index + 2}.{i}", factor, "up" if grows and i == 0 else "same", grow) for i in range(config["blocks"])]
        self.down = nn.Sequential(*some)

    def posterior(self, up: Tensor, down: Tensor) -> Tensor:
        """A score for each position and code, [rows, K]."""
        (ladder_blocks, ladder), (strap_blocks, strap) = self.qladder, self.qstrap
        e = ladder(ladder_blocks(up)) + strap(strap_blocks(down))
        return self.codes.posterior(rows(e, self.codes.width))

    def prior(self, down: Tensor) -> Tensor:
        if self.pstrap is None or not self.codes.prior_width:
            raise Error(
                "the codes of a layer are missing and all of them are equally likely, so that there is no most likely "
                "one; give the codes of this layer too"
            )
        blocks, strap = self.pstrap
        return self.codes.prior(rows(strap(blocks(down)), self.codes.prior_width))

    def below(self, down: Tensor, codes: Tensor) -> Tensor:
        """d_ℓ, from d_{ℓ+1} and codes [n, side, side]."""
        blocks, ladder = self.pladder
        z = F.embedding(codes.long(), self.codes.mean)
        # A fully connected layer has one pixel with all positions in its channels.
        z = z.reshape(codes.shape[0], self.features, self.features, -1).permute(0, 3, 1, 2)
        d: Tensor = self.down(down) + blocks(ladder(z))
        return d


class LogisticMean(nn.Module):
    """The decoder's output is the mean; bytes span [−0.5, 0.5]."""

    def __init__(self, _weights: Weights, _config: Dict[str, Any]) -> None:
        super().__init__()

    def forward(self, raw: Tensor) -> Tensor:
        return raw


class MixtureMean(nn.Module):
    """The expectation of a mixture of logistics whose channels follow each other."""

    def __init__(self, weights: Weights, config: Dict[str, Any]) -> None:
        super().__init__()
        self.centres = nn.Parameter(weights["likelihood.centres"].view(1, -1, 1, 1).clone())
        self.components, self.channels = config["mixtures"], config["image_channels"]

    def forward(self, raw: Tensor) -> Tensor:
        m, c = self.components, self.channels

        def slot(i: int) -> Tensor:
            return raw[:, i * m : (i + 1) * m]

        border = 1 - 1 / 256
        means: List[Tensor] = []
        for channel in range(c):
            mean = slot(1 + channel) + self.centres
            first = 1 + 2 * c + channel * (channel - 1) // 2
            for i in range(channel):
                mean = mean + slot(first + i).tanh() * means[i]
            means.append(mean.clamp(-border, border))
        weight = slot(0).softmax(dim=1)
        return torch.cat([(weight * mean).sum(1, keepdim=True) * 0.5 for mean in means], dim=1)


LIKELIHOODS = {
    "logistic": LogisticMean,
    "logistic-channel": LogisticMean,
    "mixture": MixtureMean,
    "mixture-causal": MixtureMean,
}


class Hierarchy(nn.Module):
    """A trained hierarchy of codes."""

    def __init__(self, model: "Model") -> None:
        super().__init__()
        config = model.config["model"]
        for key, known in (("latent", LATENTS), ("likelihood", LIKELIHOODS)):
            if config[key] not in known:
                raise Error(
                    f'a model whose model.{key} is "{config[key]}" is not written in PyTorch; there are {", ".join(known)}'
                )
        weights = {name: torch.from_numpy(np.array(value)) for name, value in model.tensors().items()}
        factor, grow = model.native.block_factor, config["grow"]
        self.dense = config["backbone"] == "mlp"
        sides = [layer.side for layer in model.layers]
        features = [1] * len(sides) if self.dense else sides
        self.image_shape = model.image_shape
        self.top = nn.Parameter(weights["top"].permute(0, 3, 1, 2).contiguous())
        first = [Conv(weights, "enc.1", 1 if self.dense else 2)]
        while f"enc.1.down{len(first)}.v" in weights:
            first.append(Conv(weights, f"enc.1.down{len(first)}", 2))
        self.first = nn.ModuleList(first)
        up, layers = [], []
        for i, (side, here) in enumerate(zip(sides, features)):
            above = features[i + 1] if i + 1 < len(sides) else here
            layers.append(Layer(weights, i, (side, here), grow, factor, {**config, "features_above": above}))
            if i > 0:
                resize = "down" if here < features[i - 1] else "same"
                some = [Block(weights, f"enc.{i + 1}.{j}", factor, resize if j == 0 else "same", grow) for j in range(config["blocks"])]
                up.append(nn.Sequential(*some))
        self.up, self.layers = nn.ModuleList(up), nn.ModuleList(layers)
        self.last = Conv(weights, "dec.1", border="zero" if self.dense else config["border"])
        self.factor = model.image_shape[0] // features[0]
        self.likelihood = LIKELIHOODS[config["likelihood"]](weights, config)
        self.eval()

    def features(self, images: Tensor) -> List[Tensor]:
        """The up pass, bottom first; images are [n, channels, h, w], 0 to 255."""
        x = (images.float() + 0.5) / 128 - 1
        if self.dense:
            x = x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 1, 1)
        h = self.first[0](x)
        for conv in list(self.first)[1:]:
            h = conv(F.elu(h))
        found = [h]
        for blocks in self.up:
            found.append(blocks(found[-1]))
        return found

    def posteriors(self, images: Tensor, given: Optional[Sequence[Tensor]] = None) -> Tuple[List[Tensor], List[Tensor]]:
        """Scores [n, side, side, K] of all codes in each layer, and the codes, bottom first.

        A softmax makes probabilities of the scores. The layers above a layer have their most likely codes, or those of
        `given`, all layers of it.
        """
        up = self.features(images)
        d = self.top.expand(images.shape[0], -1, -1, -1)
        scores: List[Tensor] = []
        codes: List[Tensor] = []
        for i in reversed(range(len(up))):
            layer = cast(Layer, self.layers[i])
            found = layer.posterior(up[i], d).reshape(-1, layer.side, layer.side, layer.codes.mean.shape[0])
            scores.insert(0, found)
            codes.insert(0, found.argmax(-1) if given is None else given[i])
            d = layer.below(d, codes[0])
        return scores, codes

    def encode(self, images: Tensor) -> List[Tensor]:
        """The most likely codes of images [n, channels, h, w], 0 to 255: [n, side, side] a layer, bottom first."""
        return self.posteriors(images)[1]

    def decode(self, codes: Sequence[Tensor]) -> Tensor:
        """Means of the pixels, [n, channels, h, w], 0 to 255.

        Where the lowest layers are missing, the most likely codes of the prior take their place.
        """
        d = self.top.expand(codes[0].shape[0], -1, -1, -1)
        missing = len(self.layers) - len(codes)
        for i in reversed(range(len(self.layers))):
            layer = cast(Layer, self.layers[i])
            if i >= missing:
                here = codes[i - missing]
            else:
                here = layer.prior(d).argmax(-1).reshape(-1, layer.side, layer.side)
            d = layer.below(d, here)
        raw = self.last(F.elu(d))
        # Sub-pixels are the slow part of our channels and the fast part of PyTorch's.
        n, _, h, w = raw.shape
        raw = raw.reshape(n, self.factor**2, -1, h, w).transpose(1, 2).reshape(n, -1, h, w)
        mean: Tensor = self.likelihood(F.pixel_shuffle(raw, self.factor))
        return ((mean + 0.5) * 256 - 0.5).clamp(0, 255)

    def forward(self, images: Tensor) -> Tensor:
        """What is left of images after the most likely codes."""
        return self.decode(self.encode(images))

    def encoder(self) -> "Encoder":
        """`encode` as a module of its own, to export."""
        return Encoder(self)

    def decoder(self) -> "Decoder":
        """`decode` as a module of its own, to export; it takes the maps as its arguments."""
        return Decoder(self)


class Encoder(nn.Module):
    """Images to codes."""

    def __init__(self, net: Hierarchy) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tuple[Tensor, ...]:
        return tuple(self.net.encode(images))


class Decoder(nn.Module):
    """Codes to means of pixels."""

    def __init__(self, net: Hierarchy) -> None:
        super().__init__()
        self.net = net

    def forward(self, *codes: Tensor) -> Tensor:
        return self.net.decode(codes)
