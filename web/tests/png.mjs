// Pictures for the tests: a PNG writer of a dozen lines, and ten images of all the kinds that the codec tells apart.

import { deflateSync, crc32 } from "node:zlib";

function chunk(kind, data) {
  const body = Buffer.concat([Buffer.from(kind), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc32(body), body.length + 4);
  return out;
}

// channels: 1 grey, 2 grey and opacity, 3 colour, 4 colour and opacity.
export function png(width, height, channels, sample) {
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width, 0);
  head.writeUInt32BE(height, 4);
  head.set([8, [0, 0, 4, 2, 6][channels]], 8);
  const rows = Buffer.alloc(height * (1 + width * channels));
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      for (let c = 0; c < channels; c++) rows[y * (1 + width * channels) + 1 + x * channels + c] = sample(x, y, c);
    }
  }
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), chunk("IHDR", head), chunk("IDAT", deflateSync(rows)), chunk("IEND", Buffer.alloc(0))]);
}

export function tenImages() {
  let word = 12345;
  const noise = (most) => (word = (Math.imul(word, 1103515245) + 12345) & 0x7fffffff) % most;
  const wave = (x, y, c) => 128 + 70 * Math.sin((x + 3 * c) / 5) + 40 * Math.cos((y - x) / (7 + c)) + noise(9);
  const disc = (x, y, c) => ((x - 16) ** 2 + (y - 14) ** 2 < 90 ? [220, 120, 60, 255][c] : 40 + 3 * y) + noise(5);
  const kinds = [
    ["wave", 32, 32, 3, wave], ["disc", 32, 32, 3, disc], ["noise", 32, 32, 3, () => noise(256)],
    ["flat", 32, 32, 3, (x, y, c) => [30, 90, 200][c]], ["wide", 61, 20, 3, wave], ["tall", 17, 45, 3, disc],
    ["grey", 40, 33, 1, wave], ["clear", 36, 30, 4, (x, y, c) => (c === 3 ? 8 * x : wave(x, y, c))],
    ["grey-clear", 33, 32, 2, (x, y, c) => (c ? 255 - 7 * y : disc(x, y, 0))], ["dot", 1, 1, 3, () => 77],
  ];
  return kinds.map(([name, ...rest]) => ({ name, bytes: png(...rest) }));
}
