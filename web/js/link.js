// A state as the part of an address behind "#", and back.

const letters = (bytes) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const bytesOf = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));

// Codes of all layers, bottom first, two bytes each where a layer has more than 256.
function packCodes(codes, layers) {
  const out = [];
  codes.forEach((map, layer) => map.forEach((code) => (layers[layer].codes > 256 ? out.push(code & 255, code >> 8) : out.push(code))));
  return letters(out);
}

function unpackCodes(text, layers) {
  const bytes = bytesOf(text);
  let at = 0;
  const take = (wide) => (wide ? bytes[at++] | (bytes[at++] << 8) : bytes[at++]);
  const codes = layers.map(({ side, codes }) => Array.from({ length: side * side }, () => take(codes > 256)));
  const fits = at === bytes.length && codes.every((map, layer) => map.every((code) => code < layers[layer].codes));
  if (!fits) throw new Error("the link was made with another model; open that one and try again");
  return codes;
}

const packSource = (source, layers) => (source.codes ? `c${packCodes(source.codes, layers)}` : `s${source.seed}`);
const unpackSource = (text, layers) => (text[0] === "c" ? { codes: unpackCodes(text.slice(1), layers) } : { seed: whole(text.slice(1)) });
const whole = (text) => {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 0 || number > 0xffffffff) throw new Error("the link is damaged; copy it again");
  return number;
};

export function toLink(state, layers) {
  const fields = new URLSearchParams({ m: state.mode, s: state.seed, t: state.temperature });
  if (state.edits.length) fields.set("e", state.edits.map((e) => [e.layer, e.position, e.seed, ...(e.code === undefined ? [] : [e.code])].join(".")).join("_"));
  if (state.mode === "image" && state.image) {
    fields.set("i", packCodes(state.image.codes, layers));
    fields.set("d", state.dropped);
  }
  if (state.mode === "between") {
    fields.set("a", packSource(state.a, layers));
    fields.set("b", packSource(state.b, layers));
    fields.set("p", state.share);
    if (state.fill) fields.set("f", 1);
  }
  return `#${fields}`;
}

export function fromLink(hash, layers, state) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const modes = ["sample", "image", "between", "file"];
  if (!modes.includes(fields.get("m"))) return state;
  const edit = (text) => {
    const [layer, position, seed, code] = text.split(".").map((part) => (part === "-1" ? -1 : whole(part)));
    const there = layers[layer];
    if (!there || position < -1 || position >= there.side ** 2 || seed === undefined || code >= there.codes) {
      throw new Error("the link was made with another model; open that one and try again");
    }
    return code === undefined ? { layer, position, seed } : { layer, position, seed, code };
  };
  const image = fields.get("i");
  const mode = fields.get("m") === "image" && !image ? "sample" : fields.get("m");
  return {
    ...state,
    mode,
    seed: whole(fields.get("s") ?? 1),
    temperature: Math.min(1.5, Math.max(0, Number(fields.get("t")) || 0)),
    edits: fields.get("e") ? fields.get("e").split("_").map(edit) : [],
    image: image ? { codes: unpackCodes(image, layers), bits: null, name: "a shared image" } : null,
    dropped: Math.min(layers.length, whole(fields.get("d") ?? 0)),
    a: fields.get("a") ? unpackSource(fields.get("a"), layers) : state.a,
    b: fields.get("b") ? unpackSource(fields.get("b"), layers) : state.b,
    share: Math.min(100, whole(fields.get("p") ?? 0)),
    fill: fields.has("f"),
  };
}
