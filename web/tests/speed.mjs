// How long a module takes, without a browser: node speed.mjs MODULE MODEL
//
// Processor time beside wall time, so that a busy machine can be told from a slow program.

import { readFileSync } from "node:fs";

const [file, model] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(readFileSync(file), {});
const program = instance.exports;

function ask(question, bytes = new Uint8Array()) {
  const text = new TextEncoder().encode(JSON.stringify(question));
  const len = 4 + text.length + bytes.length;
  const at = program.room(len); // may move the memory
  const room = new Uint8Array(program.memory.buffer, at, len);
  new DataView(room.buffer, room.byteOffset).setUint32(0, text.length, true);
  room.set(text, 4);
  room.set(bytes, 4 + text.length);
  const size = program.answer();
  const all = new Uint8Array(program.memory.buffer, program.answer_at(), size).slice();
  const told = JSON.parse(new TextDecoder().decode(all.subarray(4, 4 + new DataView(all.buffer).getUint32(0, true))));
  if (told.error) throw new Error(told.error);
  return told;
}

function timed(what, work) {
  const [begun, used] = [performance.now(), process.cpuUsage()];
  const found = work();
  const cpu = process.cpuUsage(used);
  console.log(`${what.padEnd(34)} ${((cpu.user + cpu.system) / 1000).toFixed(0).padStart(5)} ms of processor time, ${(performance.now() - begun).toFixed(0).padStart(5)} ms`);
  return found;
}

const bytes = readFileSync(model);
const { layers } = timed("opening", () => ask({ ask: "open", name: "model" }, bytes));
const plan = layers.map(() => ({ seed: 1, temperature: 0.8 }));
const draw = () => ask({ ask: "draw", plan: { layers: plan } });
timed("first picture", draw);
// The engine of the browser compiles what is used often a second time.
for (let seed = 2; seed < 12; seed++) {
  plan.forEach((layer) => (layer.seed = seed));
  draw();
}
for (const layer of [layers.length - 1, Math.floor(layers.length / 2), 0]) {
  plan[layer].redraw = [[0, 99]];
  timed(`position of layer ${layer + 1} drawn anew`, draw);
}
plan.forEach((layer) => (layer.seed = 99));
timed("all layers drawn anew", draw);
