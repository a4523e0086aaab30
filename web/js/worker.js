// Runs the program: one question at a time, in the order they come.

// A module with one function that returns a vector: valid where the browser has simd128.
const SIMD = [
  0, 97, 115, 109, 1, 0, 0, 0, // "\0asm", version 1
  1, 5, 1, 96, 0, 1, 123, // a type: nothing to v128
  3, 2, 1, 0, // a function of it
  10, 22, 1, 20, 0, 253, 12, ...Array(16).fill(0), 11, // v128.const 0, end
];

let program;

async function start() {
  const asked = new URL(self.location).searchParams.get("simd");
  const simd = asked !== "no" && WebAssembly.validate(new Uint8Array(SIMD));
  const file = simd ? "../rrvq-simd.wasm" : "../rrvq.wasm";
  const response = await fetch(new URL(file, import.meta.url));
  if (!response.ok) throw new Error(`${file.slice(3)} could not be fetched (${response.status}); build the page with tools/web.sh`);
  const { instance } = await WebAssembly.instantiate(await response.arrayBuffer(), {});
  program = instance.exports;
  return { simd };
}

const bytesAt = (at, len) => new Uint8Array(program.memory.buffer, at, len);

function answer(question, bytes) {
  const text = new TextEncoder().encode(JSON.stringify(question));
  const len = 4 + text.length + bytes.length;
  const room = bytesAt(program.room(len), len);
  new DataView(room.buffer, room.byteOffset).setUint32(0, text.length, true);
  room.set(text, 4);
  room.set(bytes, 4 + text.length);
  let all;
  try {
    const size = program.answer();
    all = bytesAt(program.answer_at(), size).slice();
  } catch (error) {
    const said = new TextDecoder().decode(bytesAt(program.panic_at(), program.panic_len()).slice());
    throw new Error(`the program stopped: ${said || error.message}; load the page again`);
  }
  const end = 4 + new DataView(all.buffer).getUint32(0, true);
  const told = JSON.parse(new TextDecoder().decode(all.subarray(4, end)));
  if (told.error) throw new Error(told.error);
  return { ...told, bytes: all.slice(end) };
}

const started = start();
self.onmessage = async ({ data: { number, question, bytes } }) => {
  try {
    const { simd } = await started;
    const begun = performance.now();
    const found = answer(question, bytes ?? new Uint8Array());
    found.milliseconds = performance.now() - begun;
    found.simd = simd;
    self.postMessage({ number, found }, [found.bytes.buffer]);
  } catch (error) {
    self.postMessage({ number, error: error.message });
  }
};
