// The page: what a person chose (a state), what is asked of the program, what is shown.

import { takeFiles } from "./drops.js";
import { Engine } from "./engine.js";
import * as files from "./files.js";
import { fromLink, toLink } from "./link.js";
import { Maps } from "./maps.js";
import { around, codeColour, picture as paintPicture } from "./paint.js";
import { betweenPlan, firstState, imagePlan, samplePlan, topOf } from "./plan.js";

const $ = (id) => document.getElementById(id);
const engine = new Engine();
const maps = new Maps($("maps"), act, hover);
const past = [];
let state = firstState();
let model = null;
let tool = "position";
let codes = null;
let touched = -1;
let jobs = Promise.resolve();
let busy = 0;
// Counts what was asked for; work that was overtaken ends itself.
let wish = 0;

function say(text) {
  $("message").textContent = text;
  $("message").hidden = !text;
}

// One piece of work after another; errors become sentences on the page.
function job(work) {
  busy++;
  document.body.dataset.busy = "true";
  jobs = jobs.then(work).catch((error) => say(error.message)).finally(() => {
    if (--busy === 0) delete document.body.dataset.busy;
  });
  return jobs;
}

// --- drawing

async function sourceCodes(source) {
  if (source.codes) return source.codes;
  const own = { ...firstState(), seed: source.seed };
  const found = await engine.ask({ ask: "draw", plan: { layers: samplePlan(own, model.layers.length) } });
  return found.codes;
}

async function plan() {
  const count = model.layers.length;
  if (state.mode === "image" && state.image) return imagePlan(state, count);
  if (state.mode === "between") return betweenPlan(state, await sourceCodes(state.a), await sourceCodes(state.b));
  return samplePlan(state, count);
}

async function draw(layers, waiting = 0) {
  const found = await engine.ask({ ask: "draw", plan: { layers } });
  codes = found.codes;
  paintPicture($("picture"), found.bytes, model.size);
  const bits = state.mode === "image" && !state.edits.length && $("heat").checked ? (state.image?.bits ?? null) : null;
  maps.show({ codes, bits, edits: state.edits, waiting: Math.max(waiting, state.mode === "image" ? state.dropped : 0), touched });
  $("timing").textContent = `last picture in ${found.milliseconds.toFixed(0)} ms, ${found.simd ? "with" : "without"} simd128`;
  document.body.dataset.milliseconds = found.milliseconds;
  return found;
}

function refresh() {
  const mine = ++wish;
  controls();
  return job(async () => {
    if (mine !== wish) return;
    await draw(await plan());
    caption();
  });
}

function grow() {
  const mine = ++wish;
  controls();
  return job(async () => {
    const layers = await plan();
    for (let count = 0; count <= layers.length && mine === wish; count++) {
      await draw(topOf(layers, count), layers.length - count);
      $("caption").textContent = count < layers.length ? `${count} of ${layers.length} layers drawn; below, what the prior thinks likeliest` : "";
    }
    if (mine === wish) caption();
  });
}

function caption() {
  const count = model.layers.length;
  const of = { sample: `sample of all ${count} layers`, between: `from the top, ${state.share} % of the layers hold the second picture's codes` };
  const kept = state.dropped ? `what is left without the lowest ${state.dropped} of ${count} layers` : "reconstruction";
  $("caption").textContent = state.mode === "image" ? (state.edits.length ? "drawn anew from its codes" : kept) : (of[state.mode] ?? "");
}

// --- states

function change(next, how = refresh) {
  past.push(state);
  state = { ...state, ...next };
  history.replaceState(null, "", toLink(state, model.layers));
  say("");
  $("meaning").hidden = true;
  return how();
}

function undo() {
  if (!past.length) return;
  state = past.pop();
  touched = -1;
  history.replaceState(null, "", toLink(state, model.layers));
  $("meaning").hidden = true;
  say("");
  refresh();
}

// Moves of one slider are one step back.
let sliding = null;
function slide(name, value) {
  if (sliding === name && past.length) state = past.pop();
  sliding = name;
  change({ [name]: value });
}
document.addEventListener("change", () => (sliding = null));

const freshSeed = () => crypto.getRandomValues(new Uint32Array(1))[0];

function act(layer, position, asked) {
  const what = asked ?? tool;
  if (!codes) return;
  if (state.mode === "image" && !state.image) return say("Drop an image first: its codes will be here.");
  touched = layer;
  if (what === "look") {
    explain(layer, position);
  } else if (state.mode === "between") {
    say("Codes between two pictures are given; go to a sample or to your image to draw them anew.");
  } else {
    const seed = freshSeed() % 1_000_000;
    change({ edits: [...state.edits, { layer, position: what === "layer" ? -1 : position, seed }] });
  }
}

function hover(layer, position) {
  const mark = $("mark");
  mark.hidden = position < 0;
  if (position < 0) return;
  const { side } = model.layers[layer];
  const part = 100 / side;
  Object.assign(mark.style, { width: `${part}%`, height: `${part}%`, left: `${(position % side) * part}%`, top: `${Math.floor(position / side) * part}%` });
}

// The likeliest codes at a position, each with the picture it would make.
function explain(layer, position) {
  const mine = ++wish;
  $("meaning").hidden = false;
  $("others").replaceChildren();
  $("meaning-told").textContent = "…";
  return job(async () => {
    const layers = await plan();
    await draw(layers);
    const found = await engine.ask({ ask: "prior", layer, position, most: 8 });
    const side = model.layers[layer].side;
    const same = codes[layer].filter((code) => code === found.code).length;
    const chip = document.createElement("span");
    chip.className = "chip";
    chip.style.background = codeColour(found.code);
    const bits = -Math.log2(Math.max(found.chance, 1e-30));
    $("meaning-told").replaceChildren(chip, `Layer ${layer + 1}, row ${Math.floor(position / side) + 1}, column ${(position % side) + 1}: code ${found.code} of ${model.layers[layer].codes}. ` +
      `Given the layers above, the prior gave it ${(100 * found.chance).toFixed(found.chance < 0.01 ? 3 : 1)} % (${bits.toFixed(1)} bits; on average here ${found.entropy.toFixed(1)}). ` +
      `It is at ${same} of ${side * side} positions of this map. Below: the picture around it with other codes in this place; choose one to keep it.`);
    // On a narrow page it stands above the maps, out of sight.
    if (matchMedia("(max-width: 52rem)").matches) $("meaning").scrollIntoView();
    const listed = found.likeliest.some(([code]) => code === found.code) ? found.likeliest : [[found.code, found.chance], ...found.likeliest.slice(0, -1)];
    for (const [code, chance] of listed) {
      if (mine !== wish) return;
      const other = layers.map((plan, at) => (at === layer ? { ...plan, set: [...plan.set, [position, code]] } : plan));
      const seen = await engine.ask({ ask: "draw", plan: { layers: other } });
      const button = document.createElement("button");
      const canvas = document.createElement("canvas");
      around(canvas, seen.bytes, model.size, position, side);
      button.append(canvas, `${code} · ${(100 * chance).toFixed(chance < 0.1 ? 1 : 0)} %`);
      button.classList.toggle("here", code === found.code);
      button.title = `code ${code}`;
      button.disabled = state.mode === "between";
      button.onclick = () => change({ edits: [...state.edits, { layer, position, seed: 0, code }] });
      $("others").append(button);
    }
    if (mine === wish) await draw(layers);
  });
}

// --- images and files

async function encode(name, bytes) {
  const found = await engine.ask({ ask: "encode", name }, bytes);
  const { codes, bits, pixel_bits: pixels } = found;
  return { codes, bits, pixels, name, rgba: found.bytes };
}

function take(slot, name, bytes) {
  say("");
  if (slot === "model") return job(() => openModel(name, bytes)).then(grow);
  if (slot === "compress" || slot === "open") {
    if (state.mode !== "file") change({ mode: "file" }, controls);
    return job(() => (slot === "open" ? files.open(engine, name, bytes) : files.compress(engine, name, bytes)));
  }
  let image;
  return job(async () => {
    image = await encode(name, bytes);
  }).then(() => {
    if (!image) return;
    const into = state.mode === "between" && slot !== "image" ? { [slot]: image } : { mode: "image", image, dropped: 0, edits: [] };
    return change(into);
  });
}

function rates() {
  const { bits, pixels } = state.image ?? {};
  $("bars").replaceChildren();
  $("rate").textContent = "";
  if (!bits) return;
  const sums = bits.map((map) => map.reduce((sum, value) => sum + Math.max(0, value), 0));
  const most = Math.max(...sums);
  const dims = model.size ** 2 * model.channels;
  const total = sums.reduce((a, b) => a + b, 0);
  $("rate").textContent = `codes ${total.toFixed(0)} bits, pixels ${pixels.toFixed(0)}: ${((total + pixels) / dims).toFixed(2)} bits per dim`;
  for (let layer = sums.length - 1; layer >= 0; layer--) {
    const row = document.createElement("li");
    row.classList.toggle("gone", layer < state.dropped);
    const bar = document.createElement("i");
    bar.style.width = `${(100 * sums[layer]) / most}%`;
    const texts = [`layer ${layer + 1}`, `${sums[layer].toFixed(1)} bits`].map((text) => Object.assign(document.createElement("span"), { textContent: text }));
    row.append(texts[0], bar, texts[1]);
    $("bars").append(row);
  }
}

// --- controls follow the state

function controls() {
  const { mode } = state;
  document.body.dataset.mode = mode;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    tab.setAttribute("aria-selected", tab.dataset.mode === mode);
    tab.tabIndex = tab.dataset.mode === mode ? 0 : -1;
  }
  for (const panel of document.querySelectorAll("[data-for]")) panel.hidden = panel.dataset.for !== mode;
  $("stage").hidden = mode === "file";
  $("files").hidden = mode !== "file";
  $("undo").disabled = past.length === 0;
  $("seed").value = state.seed;
  $("temperature").value = state.temperature;
  $("temperature-told").textContent = state.temperature.toFixed(2);
  $("dropped").max = model.layers.length;
  $("leave-out").max = model.layers.length - 1;
  $("dropped").value = state.dropped;
  $("dropped-told").textContent = `${state.dropped} of ${model.layers.length}`;
  $("share").value = state.share;
  $("share-told").textContent = `${state.share} %`;
  $("fill").checked = state.fill;
  const original = mode === "image" && state.image?.rgba;
  $("original-box").hidden = !original;
  if (original) paintPicture($("original"), state.image.rgba, model.size);
  for (const slot of mode === "between" ? ["a", "b"] : []) {
    const canvas = document.querySelector(`[data-slot=${slot}] canvas`);
    const source = state[slot];
    if (source.rgba) {
      paintPicture(canvas, source.rgba, model.size);
      continue;
    }
    job(async () => {
      const layers = source.codes ? source.codes.map((codes) => ({ codes })) : samplePlan({ ...firstState(), seed: source.seed }, model.layers.length);
      source.rgba = (await engine.ask({ ask: "draw", plan: { layers } })).bytes;
      paintPicture(canvas, source.rgba, model.size);
    });
  }
  if (mode === "image") rates();
}

function mode(next) {
  if (next === state.mode) return;
  touched = -1;
  change({ mode: next, edits: [] }, next === "file" || (next === "image" && !state.image) ? wait : refresh);
}

// Nothing to draw yet.
function wait() {
  controls();
  if (state.mode === "image") $("caption").textContent = "drop an image to see its codes";
}

// --- models

async function openModel(name, bytes) {
  model = await engine.ask({ ask: "open", name: name.replace(/\.safetensors$/, "") }, bytes);
  const count = model.layers.length;
  $("about").textContent = `${model.name} · ${count} layers of codes · ${(model.parameters / 1e6).toFixed(1)} million parameters · computes in this page, nothing is sent anywhere`;
  document.title = `rrvq · ${model.name}`;
  maps.build(model.layers);
  past.length = 0;
  state = firstState();
  codes = null;
  document.body.dataset.model = model.name;
}

async function fetched(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address} could not be fetched (${response.status}); drop a packed model here instead`);
  return response;
}

async function start() {
  const asked = new URLSearchParams(location.search).get("model");
  const listed = asked ? { name: asked.split("/").pop(), file: asked } : await (await fetched("model.json")).json();
  const bytes = new Uint8Array(await (await fetched(listed.file)).arrayBuffer());
  const begun = performance.now();
  await openModel(listed.name, bytes);
  try {
    state = fromLink(location.hash, model.layers, state);
  } catch (error) {
    say(error.message);
  }
  const linked = location.hash.length > 1;
  const first = draw(linked ? await plan() : topOf(await plan(), 0), linked ? 0 : model.layers.length);
  await first;
  document.body.dataset.first = performance.now() - begun;
  document.body.dataset.state = "ready";
  linked ? (controls(), caption()) : grow();
}

// --- listening

document.querySelectorAll("[role=tab]").forEach((tab) => (tab.onclick = () => mode(tab.dataset.mode)));
$("tabs").onkeydown = (event) => {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const at = tabs.findIndex((tab) => tab.dataset.mode === state.mode) + { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (tabs[at]) {
    mode(tabs[at].dataset.mode);
    tabs[at].focus();
  }
};
document.querySelectorAll("[data-tool]").forEach((button) => {
  button.onclick = () => {
    tool = button.dataset.tool;
    document.querySelectorAll("[data-tool]").forEach((other) => other.setAttribute("aria-checked", other === button));
  };
});
const newSample = () => change({ mode: "sample", seed: freshSeed() % 1_000_000, edits: [] }, grow);
$("new").onclick = newSample;
$("grow").onclick = grow;
$("undo").onclick = undo;
$("seed").onchange = () => change({ seed: Math.min(0xffffffff, Math.max(0, Math.trunc(Number($("seed").value) || 0))), edits: [] }, grow);
$("temperature").oninput = () => slide("temperature", Number($("temperature").value));
$("dropped").oninput = () => state.image && slide("dropped", Number($("dropped").value));
$("share").oninput = () => slide("share", Number($("share").value));
$("fill").onchange = () => change({ fill: $("fill").checked });
$("heat").onchange = () => codes && refresh();
$("play").onclick = play;
$("link").onclick = copyLink;
$("theme").onclick = theme;
takeFiles(take);

async function play() {
  if (state.mode !== "between") return;
  const base = state;
  for (let share = 0; share <= 100; share += 4) {
    if (state.mode !== "between" || (share > 0 && state.share !== share - 4)) return;
    state = { ...base, share };
    await refresh();
  }
  history.replaceState(null, "", toLink(state, model.layers));
}

async function copyLink() {
  const address = new URL(toLink(state, model.layers), location.href).href;
  history.replaceState(null, "", address);
  try {
    await navigator.clipboard.writeText(address);
    say("The link is in the clipboard. It restores this view for anyone who has the same model.");
  } catch {
    say("The link is in the address bar. It restores this view for anyone who has the same model.");
  }
}

function theme() {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim() === "#171614";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input[type=number]");
  if (!model || typing || event.altKey || ((event.ctrlKey || event.metaKey) && event.key !== "z")) return;
  const tabs = ["sample", "image", "between", "file"];
  const keys = { n: newSample, g: grow, u: undo, z: undo, l: copyLink, t: theme, p: play };
  const digit = tabs[Number(event.key) - 1];
  if (digit) mode(digit);
  else keys[event.key.toLowerCase()]?.();
});
window.addEventListener("hashchange", () => {
  if (!model || location.hash === toLink(state, model.layers)) return;
  try {
    const next = fromLink(location.hash, model.layers, state);
    past.push(state);
    state = next;
    refresh();
  } catch (error) {
    say(error.message);
  }
});

job(start);
