"""What the tests share: a model that was trained for a moment, and images that are not all alike."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import rrvq


@pytest.fixture(scope="session")
def trained():
    """Two layers of codes on 8×8 swatches."""
    return rrvq.train("tiny-swatches", steps=60, progress=False)


@pytest.fixture(scope="session")
def built_in():
    return rrvq.load("tiles-2")


def ramps(count, side, channels=3):
    """Images with an edge and a slope, each another one."""
    i, y, x, c = np.ogrid[:count, :side, :side, :channels]
    values = 40 * ((x + i) % side > y) + 9 * y * (c + 1) + 5 * x + 31 * i
    return (values % 256).astype(np.uint8)


@pytest.fixture(scope="session")
def program():
    """The program rrvq: the one that RRVQ_PROGRAM names, or the one that the tests in Rust have built."""
    root = Path(__file__).resolve().parents[3]
    found = os.environ.get("RRVQ_PROGRAM") or shutil.which(str(root / "target/debug/rrvq"))
    if not found:
        pytest.skip("the program rrvq is not built; cargo build makes it, RRVQ_PROGRAM names another")
    return found
