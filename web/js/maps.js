// The maps of codes: one canvas a layer, top first, in strips of one scale. Pointer and keys end in the same two calls.

import { codeColour, heatColour, map as paintMap } from "./paint.js";

export class Maps {
  #figures = [];
  #layers = [];

  // `act(layer, position, tool)` for a click or Enter, `hover(layer, position)` while a position is pointed at.
  constructor(box, act, hover) {
    this.box = box;
    this.act = act;
    this.hover = hover;
  }

  build(layers) {
    this.#layers = layers;
    this.#figures = [];
    this.box.replaceChildren();
    let strip;
    let side = 0;
    for (let layer = layers.length - 1; layer >= 0; layer--) {
      if (layers[layer].side !== side) {
        side = layers[layer].side;
        const scale = document.createElement("div");
        scale.className = "scale";
        const title = document.createElement("h3");
        title.textContent = `${side} × ${side} positions`;
        strip = document.createElement("div");
        strip.className = "strip";
        strip.style.setProperty("--side", side);
        scale.append(title, strip);
        this.box.append(scale);
      }
      const figure = document.createElement("figure");
      figure.className = "map";
      const canvas = document.createElement("canvas");
      canvas.tabIndex = 0;
      canvas.dataset.layer = layer;
      canvas.setAttribute("aria-label", `Layer ${layer + 1}, ${side} by ${side} codes of ${layers[layer].codes}`);
      const caption = document.createElement("figcaption");
      caption.append(document.createElement("span"), document.createElement("span"));
      caption.firstChild.textContent = `layer ${layer + 1}`;
      figure.append(canvas, caption);
      strip.append(figure);
      this.#figures[layer] = { figure, canvas, told: caption.lastChild, cursor: -1 };
      this.#listen(layer);
    }
  }

  #listen(layer) {
    const { canvas } = this.#figures[layer];
    const { side } = this.#layers[layer];
    const positionOf = (event) => {
      const box = canvas.getBoundingClientRect();
      const at = (offset, length) => Math.min(side - 1, Math.max(0, Math.floor((offset / length) * side)));
      return at(event.clientY - box.top, box.height) * side + at(event.clientX - box.left, box.width);
    };
    const move = (position) => {
      this.#figures[layer].cursor = position;
      this.#paint(layer);
      this.hover(layer, position);
    };
    canvas.addEventListener("pointermove", (event) => move(positionOf(event)));
    canvas.addEventListener("pointerleave", () => move(-1));
    canvas.addEventListener("blur", () => move(-1));
    canvas.addEventListener("click", (event) => {
      move(positionOf(event));
      this.act(layer, positionOf(event), event.shiftKey ? "layer" : event.altKey ? "look" : null);
    });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -side, ArrowDown: side };
      const cursor = Math.max(0, this.#figures[layer].cursor);
      if (event.key in steps) {
        const next = cursor + steps[event.key];
        const sideways = Math.abs(steps[event.key]) === 1 && side > 1;
        const sameRow = Math.floor(next / side) === Math.floor(cursor / side);
        if (next >= 0 && next < side * side && (!sideways || sameRow)) move(next);
      } else if (event.key === "Enter" || event.key === " ") {
        this.act(layer, cursor, event.shiftKey ? "layer" : null);
      } else if (event.key === "e" || event.key === "E") {
        this.act(layer, cursor, "look");
      } else {
        return;
      }
      event.preventDefault();
      event.stopPropagation();
    });
  }

  // codes of all layers; bits of all positions or null; edits to frame; layers below `drawn` have not been drawn yet.
  show({ codes, bits, edits, waiting, touched }) {
    this.shown = { codes, bits, edits };
    this.#layers.forEach((_, layer) => {
      const { figure, told } = this.#figures[layer];
      figure.classList.toggle("waiting", layer < waiting);
      figure.classList.toggle("touched", layer === touched);
      const total = bits && bits[layer].reduce((sum, value) => sum + Math.max(0, value), 0);
      told.textContent = bits ? `${total.toFixed(total < 10 ? 1 : 0)} bits` : `${new Set(codes[layer]).size} codes`;
      this.#paint(layer);
    });
  }

  #paint(layer) {
    if (!this.shown) return;
    const { codes, bits, edits } = this.shown;
    const { canvas, cursor } = this.#figures[layer];
    const most = Math.log2(this.#layers[layer].codes);
    const colours = bits ? bits[layer].map((value) => heatColour(value / most)) : codes[layer].map(codeColour);
    const marked = new Set(edits.filter((edit) => edit.layer === layer).map((edit) => edit.position));
    // Positions of the same code as the one that is pointed at.
    if (cursor >= 0 && !bits) codes[layer].forEach((code, at) => code === codes[layer][cursor] && marked.add(at));
    paintMap(canvas, this.#layers[layer].side, colours, marked, cursor);
  }
}
