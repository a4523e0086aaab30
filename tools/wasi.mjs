// Runs a program compiled for wasm32-wasip1 under node: cargo's runner for tests of the arithmetic.
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

process.removeAllListeners("warning");
const [program, ...args] = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args: [program, ...args, "--test-threads=1"], env: {} });
const module = await WebAssembly.compile(readFileSync(program));
const instance = await WebAssembly.instantiate(module, wasi.getImportObject());
process.exit(wasi.start(instance));
