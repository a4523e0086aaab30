// Pixels and maps on canvases.

export function picture(canvas, rgba, size) {
  canvas.width = canvas.height = size;
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(rgba), size, size), 0, 0);
}

// A square of a picture, `side` pixels wide, as much as fits around the middle of a position of a map of `positions`.
export function around(canvas, rgba, size, position, positions) {
  const cell = size / positions;
  const side = Math.min(size, Math.max(8, Math.ceil(3 * cell)));
  const start = (at) => Math.round(Math.min(size - side, Math.max(0, (at + 0.5) * cell - side / 2)));
  canvas.width = canvas.height = side;
  const data = new ImageData(new Uint8ClampedArray(rgba), size, size);
  canvas.getContext("2d").putImageData(data, -start(position % positions), -start(Math.floor(position / positions)));
}

// Neighbouring numbers get distant hues; lightness tells apart what hue alone does not.
export function codeColour(code) {
  return `oklch(${0.48 + ((code * 3) % 5) * 0.09} ${0.07 + ((code * 7) % 3) * 0.025} ${(code * 137.508 + 20) % 360})`;
}

const RAMP = [[24, 22, 48], [92, 34, 96], [186, 58, 78], [240, 140, 66], [252, 236, 170]];

export function heatColour(value) {
  const at = Math.min(0.9999, Math.max(0, value)) * (RAMP.length - 1);
  const low = RAMP[Math.floor(at)];
  const high = RAMP[Math.floor(at) + 1];
  return `rgb(${low.map((c, i) => Math.round(c + (high[i] - c) * (at % 1))).join(" ")})`;
}

const CELL = 12;

// One square a position; `marked` positions get a frame, and so does the one under the cursor.
export function map(canvas, side, colours, marked = new Set(), cursor = -1) {
  const cell = side > 24 ? 6 : CELL;
  canvas.width = canvas.height = side * cell;
  const context = canvas.getContext("2d");
  colours.forEach((colour, at) => {
    const [x, y] = [(at % side) * cell, Math.floor(at / side) * cell];
    context.fillStyle = colour;
    context.fillRect(x, y, cell, cell);
    if (marked.has(at) || at === cursor) {
      context.lineWidth = 2;
      context.strokeStyle = "#000";
      context.strokeRect(x + 1, y + 1, cell - 2, cell - 2);
      context.lineWidth = 1;
      context.strokeStyle = "#fff";
      context.strokeRect(x + 1, y + 1, cell - 2, cell - 2);
    }
  });
}
