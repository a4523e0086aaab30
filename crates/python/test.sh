#!/usr/bin/env bash
# Installs the package into a virtual environment under target/ and runs its tests. Needs python3 and a network for what
# is not installed yet; packages that the Python in use already has (PyTorch, onnxruntime) are used, and tests that need
# others are skipped with a word.
#
#   crates/python/test.sh [ARGUMENTS OF PYTEST]      PYTHON=/path/to/python3 chooses another one
set -euo pipefail
cd "$(dirname "$0")/../.."

python=${PYTHON:-python3}
env=$PWD/target/python-env
if [ ! -e "$env/complete" ]; then
    rm -rf "$env"
    "$python" -m venv --system-site-packages "$env"
    "$env/bin/pip" --quiet --disable-pip-version-check install --retries 1 --timeout 15 \
        'maturin>=1.9,<2' 'pytest>=7' 'nbclient>=0.8' 'ipykernel>=6' numpy
    touch "$env/complete"
fi
# maturin is looked for on the path.
export PATH=$env/bin:$PATH
# The profile of the other tests, in their target folder: what they have compiled is not compiled again.
MATURIN_PEP517_ARGS='--profile dev' "$env/bin/pip" --quiet --disable-pip-version-check install \
    --no-build-isolation --no-deps --force-reinstall ./crates/python
# Tests write to scratch folders, and to no cache beside the sources.
exec "$env/bin/python" -m pytest -q -rs -p no:cacheprovider crates/python/tests "$@"
