"""Every example in the package's documentation is run."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["", "._codec", "._model", "._show", "._tokens", "._train"])
def test_examples(name):
    module = importlib.import_module("rrvq" + name)
    failed, tried = doctest.testmod(module)
    assert failed == 0 and tried > 0


def test_every_public_name_has_documentation_with_an_example():
    import rrvq

    without = {"Error", "Evaluation", "Layer", "Usage", "Sheet", "__version__", "decompress"}
    for name in set(rrvq.__all__) - without:
        assert ">>>" in getattr(rrvq, name).__doc__, name
    for name in without - {"__version__"}:
        assert getattr(rrvq, name).__doc__, name
