#!/usr/bin/env python3
"""JAX yardstick: the training step of step_torch.py with the whole step jitted (XLA), NHWC.

    step_jax.py                             # the paper's 32 layers, bf16, on JAX's default device
    step_jax.py --dtype f32 --layers 4 --channels 32 --embed 16 --codes 64 --batch 32

Prints one line: the step's time, images per second, the first step's time (compiling included) and the loss.
The model is the one step_torch.py describes. Needs jax (pip install "jax[cuda13]" for a GPU, "jax" for a CPU) and numpy.
"""
import argparse, math, time
p = argparse.ArgumentParser()
p.add_argument("--batch", type=int, default=256); p.add_argument("--layers", type=int, default=32)
p.add_argument("--channels", type=int, default=256); p.add_argument("--embed", type=int, default=32)
p.add_argument("--codes", type=int, default=256); p.add_argument("--steps", type=int, default=30)
p.add_argument("--dtype", default="bf16", choices=["bf16", "f32"])
a = p.parse_args()
import jax, jax.numpy as jnp, numpy as np
from jax import lax
jax.config.update("jax_default_prng_impl", "rbg")          # the fastest generator
DT = jnp.bfloat16 if a.dtype == "bf16" else jnp.float32
rng = np.random.default_rng(0)
L, C = a.layers, a.channels
scale = [min(i // max(1, L // 4), 3) for i in range(L)]
grows = [i + 1 < L and scale[i + 1] > scale[i] for i in range(L)]


def conv_params(i, o): return dict(v=jnp.asarray(rng.normal(0, .05, (3, 3, i, o)), jnp.float32), g=jnp.ones((o,)), b=jnp.zeros((o,)))


def conv(p, x, stride=1):
    w = p["v"] * (p["g"] * lax.rsqrt(jnp.sum(p["v"] ** 2, (0, 1, 2)) + 1e-12))
    y = lax.conv_general_dilated(x, w.astype(x.dtype), (stride, stride), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + p["b"].astype(x.dtype)


def up(x):
    b, h, w, c = x.shape
    return jnp.broadcast_to(x[:, :, None, :, None, :], (b, h, 2, w, 2, c)).reshape(b, 2 * h, 2 * w, c)


def down(x):
    b, h, w, c = x.shape
    return x.reshape(b, h // 2, 2, w // 2, 2, c).mean((2, 4))


def block(p, x, mode):
    h = jax.nn.elu(x)
    if mode == "up": h, x = up(h), up(x)
    h = conv(p["b"], jax.nn.elu(conv(p["a"], h, 2 if mode == "down" else 1)))
    return (down(x) if mode == "down" else x) + 0.1 * h


def responsibilities(e, mean, logvar):
    e, iv = e.astype(jnp.float32), jnp.exp(-logvar)
    return jax.nn.log_softmax(-0.5 * (e * e) @ iv.T + e @ (mean * iv).T - 0.5 * (mean * mean * iv + logvar).sum(1))


pair = lambda: dict(a=conv_params(C, C), b=conv_params(C, C))
params = dict(
    enc1=conv_params(3, C), enc=[pair() for _ in range(1, L)],
    layers=[dict(ql=conv_params(C, a.embed), qs=conv_params(C, a.embed), ps=conv_params(C, a.embed), pl=conv_params(a.embed, C), dec=pair(),
                 mean=jnp.asarray(rng.normal(0, .3, (a.codes, a.embed)), jnp.float32), logvar=jnp.zeros((a.codes, a.embed))) for _ in range(L)],
    top=jnp.zeros((1, 16 >> scale[-1], 16 >> scale[-1], C)), out=conv_params(C, 12), logscale=jnp.asarray(-3.5))


def loss_fn(P, x8, key):
    x = (x8.astype(jnp.float32) + .5) / 256 - .5
    hs = [conv(P["enc1"], (2 * x).astype(DT), 2)]
    for i, e in enumerate(P["enc"]): hs.append(block(e, hs[-1], "down" if scale[i + 1] > scale[i] else "same"))
    d, kl = jnp.broadcast_to(P["top"].astype(DT), (x.shape[0],) + P["top"].shape[1:]), 0
    for i in reversed(range(L)):
        l, dd = P["layers"][i], up(d) if grows[i] else d
        lq = responsibilities(conv(l["ql"], hs[i]) + conv(l["qs"], dd), l["mean"], l["logvar"])
        lp = responsibilities(conv(l["ps"], dd), l["mean"], l["logvar"])
        kl = kl + (jnp.exp(lq) * (lq - lp)).sum((1, 2, 3))
        key, sub = jax.random.split(key)
        y = jax.nn.softmax((lq + jax.random.gumbel(sub, lq.shape)) / 0.5)
        y = jax.nn.one_hot(y.argmax(-1), a.codes) + y - lax.stop_gradient(y)
        d = block(l["dec"], d, "up" if grows[i] else "same") + conv(l["pl"], y.astype(DT) @ l["mean"].astype(DT))
    o = conv(P["out"], jax.nn.elu(d)).astype(jnp.float32)
    b, h, w, _ = o.shape
    m = o.reshape(b, h, w, 2, 2, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, 2 * h, 2 * w, 3).clip(-.5 + 1 / 512, .5 - 1 / 512)
    r, lo = jnp.exp(-P["logscale"]), jnp.floor(x * 256) / 256
    ll = jnp.log(jax.nn.sigmoid((lo + 1 / 256 - m) * r) - jax.nn.sigmoid((lo - m) * r) + 1e-7).sum((1, 2, 3))
    return (kl - ll).mean() / (3072 * math.log(2))


def step(state, x, key):
    P, m, u, t = state
    loss, g = jax.value_and_grad(loss_fn)(P, x, key)
    t = t + 1
    clip = jnp.minimum(1.0, 200 / jnp.sqrt(sum(jnp.sum(q * q) for q in jax.tree.leaves(g))))
    g = jax.tree.map(lambda q: q * clip, g)
    m = jax.tree.map(lambda q, r: .9 * q + .1 * r, m, g)
    u = jax.tree.map(lambda q, r: jnp.maximum(.999 * q, jnp.abs(r)), u, g)
    P = jax.tree.map(lambda q, r, s: q - 2e-3 / (1 - .9 ** t) * r / (s + 1e-8), P, m, u)
    return (P, m, u, t), loss


zeros = lambda: jax.tree.map(jnp.zeros_like, params)
state = (params, zeros(), zeros(), jnp.zeros(()))
x, key = jnp.asarray(rng.integers(0, 256, (a.batch, 32, 32, 3)), jnp.uint8), jax.random.key(0)
f = jax.jit(step, donate_argnums=0)
t0 = time.time(); state, loss = f(state, x, key); loss.block_until_ready(); first = time.time() - t0
for i in range(3): state, loss = f(state, x, jax.random.fold_in(key, i))
loss.block_until_ready(); t0 = time.time()
for i in range(a.steps): state, loss = f(state, x, jax.random.fold_in(key, i))
loss.block_until_ready(); dt = (time.time() - t0) / a.steps
print(f"jax {jax.__version__} {a.dtype} L{L} c{C} e{a.embed} k{a.codes} b{a.batch}: {dt*1e3:.1f} ms/step {a.batch/dt:.0f} img/s first {first:.0f} s loss {float(loss):.3f}")
