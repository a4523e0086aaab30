// From what a person chose to where each layer's codes come from. A state is plain data and is never changed in place;
// the same state always gives the same picture, so undoing and links need nothing but states.
//
// edits: [{layer, position, seed}] in the order they were made; position -1 is the whole layer; with `code` it is set.

export function firstState() {
  return { mode: "sample", seed: 11, temperature: 0.8, edits: [], image: null, dropped: 0, a: { seed: 11 }, b: { seed: 21 }, share: 0, fill: false };
}

const drawn = (state, temperature = state.temperature) => ({ seed: state.seed, temperature, redraw: [], set: [] });

function withEdits(layers, state) {
  for (const { layer, position, seed, code } of state.edits) {
    const plan = layers[layer];
    const elsewhere = (list) => list.filter(([at]) => at !== position);
    if (position < 0) {
      layers[layer] = { ...drawn(state), seed };
    } else if (code !== undefined) {
      plan.set = [...elsewhere(plan.set), [position, code]];
    } else {
      plan.set = elsewhere(plan.set);
      plan.redraw = [...elsewhere(plan.redraw), [position, seed]];
    }
  }
  return layers;
}

export function samplePlan(state, count) {
  return withEdits(Array.from({ length: count }, () => drawn(state)), state);
}

// The posterior's codes down to the highest layer that was edited; below it the prior draws.
export function imagePlan(state, count) {
  const highest = Math.max(-1, ...state.edits.map((edit) => edit.layer));
  const layers = state.image.codes.map((codes, layer) => {
    if (layer < state.dropped) return drawn(state, 0);
    return layer < highest ? drawn(state) : { ...drawn(state), codes };
  });
  return withEdits(layers.slice(0, count), state);
}

// An order of all positions, top layer first, shuffled within a layer: the same one every time.
function turn(layer, position) {
  let word = Math.imul(layer + 1, 0x9e3779b1) ^ Math.imul(position + 1, 0x85ebca6b);
  word = Math.imul(word ^ (word >>> 15), 0x2c1b3c6d);
  word = Math.imul(word ^ (word >>> 12), 0x297a2d39);
  return (word ^ (word >>> 15)) >>> 0;
}

// The first `share` per cent of the positions hold the second picture's codes, the others the first one's.
export function betweenPlan(state, first, second) {
  const layers = first.length;
  const part = (state.share / 100) * layers;
  return first.map((codes, layer) => {
    const here = Math.min(1, Math.max(0, part - (layers - 1 - layer)));
    const order = codes.map((_, at) => at).sort((p, q) => turn(layer, p) - turn(layer, q));
    const count = Math.round(here * codes.length);
    const mixed = [...codes];
    for (const at of order.slice(0, count)) mixed[at] = second[layer][at];
    const below = state.fill && here === 0 && state.share > 0;
    return below ? drawn(state, 0) : { ...drawn(state), codes: mixed };
  });
}

// The same plan with the lowest layers at the prior's most likely codes: a picture of which only the top is drawn.
export function topOf(plan, count) {
  const free = plan.length - count;
  return plan.map((layer, at) => (at < free ? { seed: 0, temperature: 0, redraw: [], set: [] } : layer));
}
