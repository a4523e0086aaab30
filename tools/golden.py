"""Golden values of four tiny models, from PyTorch.

The model is written here a second time, from its definition and in PyTorch's own ways (NCHW maps, nn.Module,
autograd, torch.optim), so that the Rust program has something to agree with that shares none of its code.
Each case becomes one file in crates/rrvq/tests/golden: settings, images, parameters, the pieces of the ELBO,
the gradient of every parameter, ten training losses, and how far the parameters and their running average
moved. `cargo test -p rrvq --test golden` compares.

    python tools/golden.py        (needs torch, numpy and safetensors; rewrites the files)

Every case runs twice, in float32 and in float64. The files hold the float64 values, rounded once, so that a
difference the test sees is the Rust program's own; what float32 costs PyTorch itself is printed beside it.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

FOLDER = Path(__file__).resolve().parent.parent / "crates/rrvq/tests/golden"
BATCH = 3
STEPS = 10
# The forward values are drawn at a step and a seed that need more than 32 bits.
FORWARD_STEP = (5 << 32) + 17

COMMON = {
    "model.size": 8,
    "model.embed": 5,
    "train.batch": BATCH,
    "train.steps": STEPS,
    "train.lr": 2e-3,
    "train.beta1": 0.9,
    "train.beta2": 0.999,
    "train.epsilon": 1e-8,
    "train.seed": (9 << 32) + 2024,
}

CASES = {
    "straight-through": {
        "model.maps": [4, 2, 1],
        "model.repeat": 1,
        "model.image_channels": 3,
        "model.channels": 7,
        "model.codes": 7,
        "model.blocks": 1,
        "model.ladder_blocks": 0,
        "model.top": "learnt",
        "model.sigma": "diagonal",
        "model.sample": "straight-through",
        "model.temperature.start": 0.5,
        "model.temperature.end": 0.5,
        "model.free_bits": 0.02,
        "model.likelihood": "logistic",
        "model.grow": "nearest",
        "train.optimiser": "adamax",
        "train.clip": 4.0,
        "train.ema": 0.999,
    },
    "relaxed": {
        "model.maps": [4, 2],
        "model.repeat": 2,
        "model.image_channels": 3,
        "model.channels": 6,
        "model.codes": [7, 5, 9, 4],
        "model.blocks": 2,
        "model.ladder_blocks": 1,
        "model.top": "uniform",
        "model.sigma": "isotropic",
        "model.sample": "relaxed",
        "model.temperature.start": 0.7,
        "model.temperature.end": 0.7,
        "model.free_bits": 0.0,
        "model.likelihood": "logistic-channel",
        "model.grow": "transposed",
        "train.optimiser": "adam",
        "train.clip": 0.0,
        "train.ema": 0.3,
    },
    "rvq": {
        "model.maps": [2],
        "model.repeat": 1,
        "model.image_channels": 1,
        "model.channels": 8,
        "model.codes": 7,
        "model.blocks": 1,
        "model.ladder_blocks": 0,
        "model.top": "uniform",
        "model.sigma": "one",
        "model.sample": "straight-through",
        "model.temperature.start": 0.5,
        "model.temperature.end": 0.5,
        "model.free_bits": 0.01,
        "model.likelihood": "logistic",
        "model.grow": "transposed",
        "train.optimiser": "adamax",
        "train.clip": 200.0,
        "train.ema": 0.999,
    },
    "mixture": {
        "model.maps": [4, 2],
        "model.repeat": 1,
        "model.image_channels": 3,
        "model.channels": 6,
        "model.codes": 7,
        "model.blocks": 1,
        "model.ladder_blocks": 0,
        "model.top": "learnt",
        "model.sigma": "diagonal",
        "model.sample": "straight-through",
        "model.temperature.start": 0.5,
        "model.temperature.end": 0.5,
        "model.free_bits": 0.0,
        "model.likelihood": "mixture",
        "model.mixtures": 3,
        "model.mixture_log_scale": -2.25,
        "model.grow": "transposed",
        "train.optimiser": "adamax",
        "train.clip": 200.0,
        "train.ema": 0.999,
    },
}


# ---- noise -------------------------------------------------------------------------------------------------


def philox(counter, key):
    """Philox 4x32-10 (Salmon et al. 2011) on arrays of counters: uint64 arrays that hold 32-bit words."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & low, (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3])


def gumbel(seed, stream, step, count):
    """Gumbel noise by address: element 64c + 16j + l takes word j of block 16c + l."""
    e = np.arange(count, dtype=np.uint64)
    block, word = 16 * (e // 64) + e % 16, (e // 16 % 4).astype(int)
    fixed = [np.full_like(e, v) for v in (stream, step & 0xFFFFFFFF, step >> 32)]
    words = philox([block, *fixed], (seed & 0xFFFFFFFF, seed >> 32))
    bits = words[word, np.arange(count)] >> np.uint64(9)
    uniform = (bits.astype(np.float64) + 0.5) / 2**23
    return -np.log(-np.log(uniform))


# ---- networks ----------------------------------------------------------------------------------------------


class Conv(nn.Module):
    """Weight-normalised 3×3 convolution: kernel g · v / ‖v‖ for each output channel."""

    transposed = False

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        shape = (inputs, outputs) if self.transposed else (outputs, inputs)
        self.v = nn.Parameter(torch.zeros(*shape, 3, 3))
        self.g = nn.Parameter(torch.zeros(outputs))
        self.b = nn.Parameter(torch.zeros(outputs))
        self.stride = stride

    def kernel(self):
        out = 1 if self.transposed else 0
        others = [axis for axis in range(4) if axis != out]
        gain = self.g.view([-1 if axis == out else 1 for axis in range(4)])
        return gain * self.v / torch.linalg.vector_norm(self.v, dim=others, keepdim=True)

    def forward(self, x):
        return F.conv2d(x, self.kernel(), self.b, stride=self.stride, padding=1)


class Transposed(Conv):
    """A transposed convolution of stride 2, which doubles the map."""

    transposed = True

    def forward(self, x):
        return F.conv_transpose2d(x, self.kernel(), self.b, stride=2, padding=1, output_padding=1)


class Nearest(Conv):
    """Nearest neighbour, then a convolution."""

    def forward(self, x):
        return super().forward(F.interpolate(x, scale_factor=2, mode="nearest"))


GROW = {"transposed": Transposed, "nearest": Nearest}


class Block(nn.Module):
    """x + 0.1 · conv(ELU(conv(ELU(x)))), the identity averaged down or repeated up where the map changes."""

    def __init__(self, channels, resize, grow):
        super().__init__()
        make = {"same": Conv, "down": lambda i, o: Conv(i, o, stride=2), "up": GROW[grow]}[resize]
        self.a = make(channels, channels)
        self.b = Conv(channels, channels)
        self.resize = resize

    def forward(self, x):
        identity = x
        if self.resize == "down":
            identity = F.avg_pool2d(x, 2)
        if self.resize == "up":
            identity = F.interpolate(x, scale_factor=2, mode="nearest")
        return identity + 0.1 * self.b(F.elu(self.a(F.elu(x))))


def blocks(count, channels, resize, grow):
    return nn.Sequential(*[Block(channels, resize if i == 0 else "same", grow) for i in range(count)])


class Codes(nn.Module):
    def __init__(self, count, embed, sigma):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(count, embed))
        if sigma == "one":
            self.register_buffer("logvar", torch.zeros(count, embed), persistent=False)
        else:
            self.logvar = nn.Parameter(torch.zeros(count, embed if sigma == "diagonal" else 1))

    def log_responsibilities(self, e):
        """log-softmax over codes of −½ Σ_d [(e_d − μ_kd)² / σ²_kd + log σ²_kd]."""
        distance = (e[:, None, :] - self.mean) ** 2 / self.logvar.exp() + self.logvar
        return F.log_softmax(-0.5 * distance.sum(-1), dim=-1)


class Layer(nn.Module):
    """The codes of a layer and the networks around them. Ladder blocks stand on the backbone's side."""

    def __init__(self, m, codes, grows, uniform):
        super().__init__()
        c, d, around = m["channels"], m["embed"], m["ladder_blocks"]
        strap = GROW[m["grow"]] if grows else Conv
        self.codes = Codes(codes, d, m["sigma"])
        self.qladder, self.qstrap, self.pladder = Conv(c, d), strap(c, d), Conv(d, c)
        if not uniform:
            self.pstrap = strap(c, d)
        for net in [self.qladder, self.qstrap, self.pladder] + ([] if uniform else [self.pstrap]):
            net.blocks = blocks(around, c, "same", m["grow"])

    def e_q(self, up, down):
        return self.qladder(self.qladder.blocks(up)) + self.qstrap(self.qstrap.blocks(down))

    def e_p(self, down):
        return self.pstrap(self.pstrap.blocks(down))

    def back(self, z):
        return self.pladder.blocks(self.pladder(z))


def rows(x):
    """A map as one row for each image and position."""
    return x.permute(0, 2, 3, 1).flatten(0, 2)


class Model(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.m = m = {key.removeprefix("model."): v for key, v in settings.items() if key.startswith("model.")}
        self.seed = settings["train.seed"]
        c, pixels = m["channels"], m["image_channels"]
        self.sides = sides = [side for side in m["maps"] for _ in range(m["repeat"])]
        count = len(sides)
        codes = m["codes"] if isinstance(m["codes"], list) else [m["codes"]] * count
        self.top = nn.Parameter(torch.zeros(1, c, sides[-1], sides[-1]))

        first = Conv(pixels, c, stride=2)
        self.shrinks = int(math.log2(m["size"] / sides[0])) - 1
        for i in range(self.shrinks):
            first.add_module(f"down{i + 1}", Conv(c, c, stride=2))
        self.enc, self.dec, self.layer = nn.ModuleDict({"1": first}), nn.ModuleDict(), nn.ModuleDict()
        self.factor = m["size"] // sides[0]
        self.mixture = m["likelihood"] == "mixture"
        # A component has a logit, and each channel a mean, a scale and a coefficient for every channel before it.
        outputs = m["mixtures"] * (1 + sum(2 + i for i in range(pixels))) if self.mixture else pixels
        self.dec["1"] = Conv(c, outputs * self.factor**2)
        for i, side in enumerate(sides):
            grows = i + 1 < count and side > sides[i + 1]
            if i > 0:
                shrinks = "down" if side < sides[i - 1] else "same"
                self.enc[str(i + 1)] = blocks(m["blocks"], c, shrinks, m["grow"])
            self.dec[str(i + 2)] = blocks(m["blocks"], c, "up" if grows else "same", m["grow"])
            uniform = i + 1 == count and m["top"] == "uniform"
            self.layer[str(i + 1)] = Layer(m, codes[i], grows, uniform)
        self.likelihood = nn.Module()
        if self.mixture:
            self.likelihood.centres = nn.Parameter(torch.zeros(m["mixtures"]))
        else:
            scales = () if m["likelihood"] == "logistic" else (pixels,)
            self.likelihood.log_scale = nn.Parameter(torch.zeros(scales))

    def up(self, bytes):
        h = self.enc["1"]((bytes + 0.5) / 128 - 1)
        for i in range(self.shrinks):
            h = getattr(self.enc["1"], f"down{i + 1}")(F.elu(h))
        features = [h]
        for i in range(1, len(self.sides)):
            features.append(self.enc[str(i + 1)](features[-1]))
        return features

    def sample(self, book, log_q, stream, step):
        """Gumbel-softmax: the relaxed sample, or the hard one with the relaxed one's gradient."""
        noise = torch.from_numpy(gumbel(self.seed, stream, step, log_q.numel())).to(log_q).view_as(log_q)
        noisy = log_q + noise
        index = noisy.argmax(-1)
        first, second = noisy.topk(2).values.T
        self.closest = min(self.closest, (first - second).min().item())
        y = F.softmax(noisy / self.m["temperature.start"], dim=-1)
        if self.m["sample"] == "straight-through":
            y = F.one_hot(index, y.shape[1]) + y - y.detach()
        return y @ book.mean, index

    def forward(self, bytes, step):
        """log p(x | z) [n], KL [layers, n] and the codes of each layer, bottom first."""
        n, up, d = bytes.shape[0], self.up(bytes), self.top.expand(bytes.shape[0], -1, -1, -1)
        kls, codes = [], []
        self.closest = math.inf
        for i in reversed(range(len(self.sides))):
            layer, side = self.layer[str(i + 1)], self.sides[i]
            log_q = layer.codes.log_responsibilities(rows(layer.e_q(up[i], d)))
            if hasattr(layer, "pstrap"):
                log_p = layer.codes.log_responsibilities(rows(layer.e_p(d)))
            else:
                log_p = torch.full_like(log_q, -math.log(log_q.shape[1]))
            z, index = self.sample(layer.codes, log_q, i, step)
            kls.insert(0, F.kl_div(log_p, log_q, log_target=True, reduction="none").view(n, -1).sum(1))
            codes.insert(0, index)
            z = z.view(n, side, side, -1).permute(0, 3, 1, 2)
            d = self.dec[str(i + 2)](d) + layer.back(z)
        raw = self.dec["1"](F.elu(d))
        # Sub-pixels lie outside the colours in our channels, inside them in PyTorch's.
        raw = raw.unflatten(1, (self.factor**2, -1)).transpose(1, 2).flatten(1, 2)
        self.raw = F.pixel_shuffle(raw, self.factor)
        return self.log_likelihood(bytes, self.raw), torch.stack(kls), codes

    def log_likelihood(self, bytes, raw):
        """The plain way: the log of a difference of two sigmoids, for which float64 is precise enough here."""
        if self.mixture:
            return self.mixture_log_likelihood(bytes.double(), raw.double()).to(raw)
        mean, x = raw.double(), bytes.double()
        scale = self.likelihood.log_scale.double().exp().view(-1, 1, 1)
        below = torch.sigmoid((x / 256 - 0.5 - mean) / scale)
        above = torch.sigmoid(((x + 1) / 256 - 0.5 - mean) / scale)
        below = torch.where(x == 0, torch.zeros_like(below), below)
        above = torch.where(x == 255, torch.ones_like(above), above)
        return (above - below).log().flatten(1).sum(1).to(raw)

    def mixture_log_likelihood(self, x, raw):
        """Probabilities multiplied over channels, weighted and added over components; bytes span [-1, 1]."""
        logits, red, green, blue, *rest = raw.unflatten(1, (-1, self.m["mixtures"])).unbind(1)
        scales, (red_to_green, red_to_blue, green_to_blue) = rest[:3], [c.tanh() for c in rest[3:]]
        centres = self.likelihood.centres.double().view(-1, 1, 1)
        r, g, _ = [(channel[:, None] - 127.5) / 128 for channel in x.unbind(1)]
        means = [red, green + red_to_green * r, blue + red_to_blue * r + green_to_blue * g]
        shift = math.log(math.expm1(self.m["mixture_log_scale"] + 7))
        p = logits.softmax(1)
        for channel, mean, scale in zip(x.unbind(1), means, scales):
            byte, scale = channel[:, None], (F.softplus(scale + shift) - 7).exp()
            at = lambda edge: torch.sigmoid((edge / 128 - 1 - mean - centres) / scale)
            below, above = torch.where(byte == 0, 0.0, at(byte)), torch.where(byte == 255, 1.0, at(byte + 1))
            p = p * (above - below)
        return p.sum(1).log().flatten(1).sum(1)

    def loss(self, log_likelihood, kls):
        """Bits a dimension, each layer's mean KL bounded from below by its free bits."""
        total = -log_likelihood.mean()
        for side, kl in zip(self.sides, kls):
            total = total + kl.mean().clamp(min=self.m["free_bits"] * side**2)
        return total / (self.m["size"] ** 2 * self.m["image_channels"] * math.log(2))


# ---- cases -------------------------------------------------------------------------------------------------


def values_for(name, shape, settings, random):
    """Values that leave nothing at its quiet default: gains not 1, biases, top and log-variances not 0."""
    normal = random.standard_normal(shape)
    if name.endswith(".v"):
        return 0.05 * normal
    if name.endswith(".g"):
        # The decoder's outputs should lie in, and some of them beyond, the range of the pixels.
        return random.uniform(0.6, 1.4, shape) * (0.35 if name.startswith("dec.1.") else 1)
    if name.endswith(".b"):
        return 0.1 * normal
    if name == "top":
        return normal
    if name == "likelihood.log_scale":
        return -2 + 0.2 * normal
    if name == "likelihood.centres":
        return 0.5 * normal
    # With free bits, the second layer hardly tells its codes apart, so that they take over its KL.
    quiet = 0.04 if settings["model.free_bits"] > 0 and name.startswith("layer.2.") else 1
    return quiet * {"mean": 0.5, "logvar": 0.4}[name.rsplit(".")[-1]] * normal


def draw_images(shape, random):
    """Noise around a slope, with black and white pixels."""
    n, c, h, w = shape
    slope = np.linspace(0, 255, w)[None, None, None, :]
    bytes = np.clip(np.round(slope + 60 * random.standard_normal(shape)), 0, 255)
    assert (bytes == 0).sum() > 5 and (bytes == 255).sum() > 5
    return bytes


def to_ours(name, tensor):
    """NHWC maps; kernels [kh, kw, in, out], transposed ones [kh, kw, out, in]."""
    if name == "top":
        return tensor.permute(0, 2, 3, 1)
    return tensor.permute(2, 3, 1, 0) if tensor.dim() == 4 else tensor


def run(settings, start, bytes, dtype):
    """All values of a case at one precision."""
    model = Model(settings).to(dtype)
    model.load_state_dict({name: v.to(dtype) for name, v in start.items()})
    x = bytes.to(dtype)
    out, facts = {}, {}

    log_likelihood, kls, codes = model(x, FORWARD_STEP)
    loss = model.loss(log_likelihood, kls)
    loss.backward()
    out["out.log_likelihood"], out["out.kl"], out["out.loss"] = log_likelihood, kls, loss
    for i, index in enumerate(codes):
        out[f"out.codes.{i + 1}"] = index
    for name, p in model.named_parameters():
        out[f"grad.{name}"] = to_ours(name, p.grad)
    facts["outside"] = (model.raw.abs() > 0.5).double().mean().item()
    floors = [settings["model.free_bits"] * side**2 for side in model.sides]
    facts["free"] = [kl.mean().item() < floor for kl, floor in zip(kls, floors)]
    facts["closest"] = model.closest

    of = lambda key: settings[f"train.{key}"]
    rule = {"adamax": torch.optim.Adamax, "adam": torch.optim.Adam}[of("optimiser")]
    optimiser = rule(model.parameters(), lr=of("lr"), betas=(of("beta1"), of("beta2")), eps=of("epsilon"))
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    losses, norms = [], []
    for step in range(STEPS):
        optimiser.zero_grad()
        log_likelihood, kls, _ = model(x, step)
        loss = model.loss(log_likelihood, kls)
        loss.backward()
        limit = of("clip") or math.inf
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        losses.append(loss.item())
        optimiser.step()
        facts["closest"] = min(facts["closest"], model.closest)
        decay = min(of("ema"), (2 + step) / (11 + step))
        for name, p in model.named_parameters():
            average[name] = decay * average[name] + (1 - decay) * p.detach()
    facts["clipped"] = sum(norm > limit for norm in norms)
    out["out.losses"], out["out.norms"] = torch.tensor(losses), torch.tensor(norms)
    # How far each parameter went, in the order of the names: the sum and the norm of the change.
    ends = {name: p.detach() for name, p in model.named_parameters()}
    for key, end in [("out.moved", ends), ("out.ema_moved", average)]:
        changes = [(end[name] - start[name].to(dtype)).flatten() for name in sorted(start)]
        out[key] = torch.stack([torch.stack([change.sum(), change.norm()]) for change in changes])
    return {name: v.detach() for name, v in out.items()}, facts


def largest_difference(a, b):
    return ((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-30)).item()


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, (case, own) in enumerate(CASES.items()):
        settings = COMMON | own
        random = np.random.default_rng(200 + number)
        shapes = {name: p.shape for name, p in Model(settings).named_parameters()}
        draw = lambda name: torch.from_numpy(np.array(values_for(name, shapes[name], settings, random))).float()
        start = {name: draw(name) for name in sorted(shapes)}
        size, channels = settings["model.size"], settings["model.image_channels"]
        bytes = torch.from_numpy(draw_images((BATCH, channels, size, size), random))

        single, _ = run(settings, start, bytes, torch.float32)
        double, facts = run(settings, start, bytes, torch.float64)
        apart = {name: largest_difference(single[name], double[name]) for name in double}
        worst = max(apart, key=apart.get)
        print(f"{case}: {sum(v.numel() for v in start.values())} parameters, loss {double['out.loss']:.4f}, {facts}")
        print(f"  losses {double['out.losses'].numpy().round(4)}, norms {double['out.norms'].numpy().round(3)}")
        print(f"  kl {double['out.kl'].mean(1).numpy().round(4)}; float32 is off most in {worst}: {apart[worst]:.1e}")
        assert facts["closest"] > 1e-4, "two codes are too close to call; take another seed"

        tensors = {f"param.{name}": to_ours(name, v) for name, v in start.items()}
        tensors["images"] = bytes.permute(0, 2, 3, 1)
        tensors |= double
        tensors = {name: v.float().contiguous() for name, v in tensors.items()}
        lines = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        metadata = {"set": "\n".join(lines), "step": str(FORWARD_STEP)}
        path = FOLDER / f"{case}.safetensors"
        save_file(tensors, path, metadata)
        print(f"  {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
