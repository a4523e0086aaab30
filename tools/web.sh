#!/usr/bin/env bash
# The page of web/: `tools/web.sh build` compiles its WebAssembly modules into web/dist, beside a copy of the page and a model,
# so that any web server can hand the folder out; `tools/web.sh test` builds and drives a real Chromium.
#
# RRVQ_WEB_MODEL names the model (a built-in one, a run, a packed file); RRVQ_PROGRAM a native rrvq that is built already.
set -euo pipefail
cd "$(dirname "$0")/.."
model=${RRVQ_WEB_MODEL:-cifar10}
target=wasm32-unknown-unknown

# Whether the compiler can build for the page; rustup fetches what it needs.
compiler() {
    rustup target list --installed 2>/dev/null | grep -q $target || rustup target add $target >/dev/null 2>&1
}

modules() {
    compiler || printf 'the target %s could not be added; if the build fails, `rustup target add %s`\n' $target $target >&2
    mkdir -p web/dist
    # Two folders: other flags would build everything anew each time. Side by side, as each ends in one long link.
    RUSTFLAGS="" cargo build --quiet -p rrvq-web --profile web --target $target --target-dir target/web &
    local plain=$!
    RUSTFLAGS="-C target-feature=+simd128" cargo build --quiet -p rrvq-web --profile web --target $target --target-dir target/web-simd
    wait $plain
    cp target/web-simd/$target/web/rrvq_web.wasm web/dist/rrvq-simd.wasm
    cp target/web/$target/web/rrvq_web.wasm web/dist/rrvq.wasm
    local size
    # A browser fetches one of the modules.
    size=$(cat web/dist/rrvq-simd.wasm web/index.html web/style.css web/js/*.js | wc -c)
    printf 'the page with its module: %s bytes\n' "$size"
    [ "$size" -le 3000000 ] || { printf 'the page should have at most 3 MB beside the weights\n' >&2; return 1; }
}

program() {
    if [ -z "${RRVQ_PROGRAM:-}" ]; then
        cargo build --quiet -p rrvq-cli
        RRVQ_PROGRAM=target/debug/rrvq
    fi
}

build() {
    modules
    # Packing a model needs no newer program than the one that is there.
    if [ -z "${RRVQ_PROGRAM:-}" ] && [ -x target/release/rrvq ]; then RRVQ_PROGRAM=target/release/rrvq; fi
    program
    cp -r web/index.html web/style.css web/js web/dist/
    "$RRVQ_PROGRAM" pack "$model" --out web/dist/model.safetensors --force >/dev/null
    local name
    name=$(basename "$model" .safetensors)
    printf '{"name": "%s", "file": "model.safetensors"}\n' "$name" >web/dist/model.json
    printf 'web/dist holds the page and %s\n' "$name"
}

# What the tests need and is not there, in a word.
missing() {
    compiler || { echo "the target $target"; return; }
    command -v node >/dev/null || { echo node; return; }
    [ -x "${CHROMIUM:-/usr/bin/chromium}" ] || { echo chromium; return; }
    [ -d web/tests/node_modules/playwright-core ] ||
        (cd web/tests && npm install --no-package-lock --no-audit --no-fund >/dev/null 2>&1) || echo playwright-core
}

# The arithmetic alone, on the special operands that no model has: tests of the tensor crate under node.
arithmetic() {
    local wasi=wasm32-wasip1
    rustup target list --installed 2>/dev/null | grep -q $wasi || rustup target add $wasi >/dev/null 2>&1 || {
        printf 'the arithmetic was not tested alone: the target %s is not there\n' $wasi
        return
    }
    CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $PWD/tools/wasi.mjs" RUSTFLAGS="-C target-feature=+simd128" \
        cargo test --quiet -p rrvq-tensor --lib --target $wasi --target-dir target/web-simd -- lanes:: math::
}

case ${1:-test} in
build) build ;;
# For scripts that build ahead: nothing is said where Chromium is missing, and nothing built.
modules) [ -n "$(missing)" ] || modules ;;
test)
    without=$(missing)
    if [ -n "$without" ]; then
        printf 'the page was not tested in a browser: %s is not there\n' "$without"
        exit 0
    fi
    modules
    arithmetic
    program
    node web/tests/browser.mjs "$RRVQ_PROGRAM" web/dist "$model" "${RRVQ_WEB_SHOTS:-target/web-shots}"
    ;;
*)
    printf 'usage: tools/web.sh [build | modules | test]\n' >&2
    exit 2
    ;;
esac
