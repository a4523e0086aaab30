#!/usr/bin/env python3
"""Lower bound of the training step on a GPU: cuDNN's own time for every convolution of 32 layers, and nothing else.

    conv_floor.py [BATCH]                   # default 256

Forward, data gradient and weight gradient in bf16 NHWC, each timed alone in a CUDA graph. Prints the time and the TFLOP/s
of each kind of convolution, then their sum as ms/step and images per second. Needs torch with CUDA and a GPU.
"""
import sys, torch, torch.nn.functional as F
torch.backends.cudnn.benchmark = True
B = int(sys.argv[1]) if len(sys.argv) > 1 else 256


def ms(fn, n=20):
    for _ in range(3): fn()
    torch.cuda.synchronize(); g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for _ in range(n): fn()
    g.replay(); torch.cuda.synchronize()
    s, e = torch.cuda.Event(True), torch.cuda.Event(True); s.record()
    for _ in range(3): g.replay()
    e.record(); torch.cuda.synchronize(); return s.elapsed_time(e) / n / 3


total = 0
for ci, co, count in [(256, 256, 32), (256, 32, 24), (32, 256, 8)]:      # convolutions of each kind at each scale of 8 layers
    for s in (16, 8, 4, 2):
        x = torch.randn(B, ci, s, s, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        w = torch.randn(co, ci, 3, 3, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        gy = torch.randn_like(F.conv2d(x, w, padding=1))
        back = lambda m: torch.ops.aten.convolution_backward(gy, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, m)
        t = [ms(lambda: F.conv2d(x, w, padding=1)), ms(lambda: back([True, False, False])), ms(lambda: back([False, True, False]))]
        fl = 2 * 9 * ci * co * s * s * B
        total += count * sum(t)
        print(f"{ci:3}->{co:3} {s:2}x{s:<2} " + "  ".join(f"{n} {v*1e3:6.1f} us {fl/v/1e9:4.0f} TFLOP/s" for n, v in zip(("forward", "data", "weight"), t)), flush=True)
print(f"floor, batch {B}: {total:.2f} ms/step {B/total*1e3:.0f} img/s")
