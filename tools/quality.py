"""PSNR and MS-SSIM a second time, in numpy, from their definitions: a whole window for each pixel, no separable filters.

Prints the values that the tests of crates/study/src/compare/quality.rs are held to. Needs numpy.
"""

import numpy as np

WEIGHTS = np.array([0.0448, 0.2856, 0.3001, 0.2363, 0.1333])


def pair(width, height):
    """Two pictures, [height, width, 3]: slopes with noise, and the same with more noise."""
    seed = 7

    def number():
        nonlocal seed
        seed = (seed * 1664525 + 1013904223) % 2**32
        return seed >> 24

    first = np.zeros((height, width, 3), int)
    for y in range(height):
        for x in range(width):
            for c in range(3):
                first[y, x, c] = (x * 5 + y * 3 + c * 40 + number() // 4) % 256
    second = first.copy()
    for index in np.ndindex(first.shape):
        second[index] = min(max(first[index] + number() // 8 - 16, 0), 255)
    return first.astype(float), second.astype(float)


def ssim_parts(a, b):
    size = min(11, *a.shape)
    place = np.arange(size) - (size - 1) / 2
    window = np.exp(-(place[:, None] ** 2 + place[None, :] ** 2) / (2 * 1.5**2))
    window /= window.sum()
    patches = [np.lib.stride_tricks.sliding_window_view(p, (size, size)) for p in (a, b)]
    mean_a, mean_b = [(p * window).sum((-1, -2)) for p in patches]
    off_a, off_b = patches[0] - mean_a[..., None, None], patches[1] - mean_b[..., None, None]
    var_a, var_b, cov = [(x * window).sum((-1, -2)) for x in (off_a**2, off_b**2, off_a * off_b)]
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    contrast = (2 * cov + c2) / (var_a + var_b + c2)
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    return contrast.mean(), (contrast * luminance).mean()


def ms_ssim(a, b):
    scales = 1
    while scales < 5 and min(a.shape[:2]) // 2**scales >= 11:
        scales += 1
    weights = WEIGHTS[:scales] / WEIGHTS[:scales].sum()
    values = []
    for c in range(a.shape[2]):
        pa, pb, value = a[..., c], b[..., c], 1.0
        for scale, weight in enumerate(weights):
            contrast, whole = ssim_parts(pa, pb)
            value *= max(whole if scale == scales - 1 else contrast, 0) ** weight
            h, w = pa.shape[0] // 2, pa.shape[1] // 2
            pa, pb = [p[: 2 * h, : 2 * w].reshape(h, 2, w, 2).mean((1, 3)) for p in (pa, pb)]
        values.append(value)
    return scales, np.mean(values)


for width, height in [(7, 9), (32, 32), (50, 47), (180, 190)]:
    a, b = pair(width, height)
    psnr = 10 * np.log10(255**2 / ((a - b) ** 2).mean())
    scales, value = ms_ssim(a, b)
    print(f"({width}, {height}, {psnr:.12}, {scales}, {value:.12}),")
