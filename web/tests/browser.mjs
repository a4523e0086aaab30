// Drives a real Chromium: node browser.mjs PROGRAM MODULES MODEL SHOTS
//
// PROGRAM is the native rrvq, MODULES the folder of the modules, MODEL what to serve, SHOTS where screenshots go.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { chromium } from "playwright-core";
import { tenImages } from "./png.mjs";
import { touch } from "./touch.mjs";

const [program, modules, model, shots] = process.argv.slice(2);
const scratch = mkdtempSync(join(tmpdir(), "rrvq-web-"));
mkdirSync(shots, { recursive: true });
const native = (...args) => execFileSync(resolve(program), args, { cwd: scratch, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
const done = (what) => console.log(`ok  ${what}`);

const server = spawn(program, ["serve", model, "--port", "0", "--modules", modules], { stdio: ["ignore", "pipe", "inherit"] });
const address = await new Promise((found, failed) => {
  server.stdout.on("data", (text) => found(String(text).split(" ")[0]));
  server.on("exit", (code) => failed(new Error(`rrvq serve ended with ${code}`)));
});
const launch = (profile, options) => chromium.launchPersistentContext(join(scratch, profile), {
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  ...options,
});
const browser = await launch("profile", { viewport: { width: 1280, height: 1000 } });

const idle = (page) => page.waitForSelector("body[data-state=ready]:not([data-busy])", { timeout: 120_000 });
const shot = (page, name) => page.screenshot({ path: join(shots, `${name}.png`) });
const pixels = (page) => page.evaluate(() => {
  const canvas = document.getElementById("picture");
  return [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data];
});
const message = (page) => page.textContent("#message");

async function open(hash = "", search = "") {
  const page = await browser.newPage();
  page.on("pageerror", (error) => { throw error; });
  await page.goto(`${address}${search}${hash}`);
  await idle(page);
  assert.equal(await page.isHidden("#message"), true, await message(page));
  return page;
}

// Clicks the middle of a position of a layer, counted from 0 at the bottom.
async function click(page, layer, position, side, modifiers = []) {
  const map = page.locator(`canvas[data-layer="${layer}"]`);
  await map.scrollIntoViewIfNeeded();
  const box = await map.boundingBox();
  const at = (place) => ((place + 0.5) / side);
  await map.click({ position: { x: at(position % side) * box.width, y: at(Math.floor(position / side)) * box.height }, modifiers });
  await idle(page);
}

// Pixels of a native picture, drawn `scale` times as large, at its own size.
const shrunk = (page, file, scale) => page.evaluate(async ([data, scale]) => {
  const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const all = context.getImageData(0, 0, image.width, image.height).data;
  const out = [];
  for (let y = 0; y < image.height; y += scale) for (let x = 0; x < image.width; x += scale) out.push(...all.slice((y * image.width + x) * 4, (y * image.width + x) * 4 + 4));
  return out;
}, [readFileSync(file).toString("base64"), scale]);

try {
  const page = await open();
  const first = await page.evaluate(() => Number(document.body.dataset.first));
  const sizes = await page.evaluate(() => [...document.querySelectorAll("#maps canvas")].map((c) => Number(c.getAttribute("aria-label").match(/(\d+) by/)[1])).reverse());
  const top = sizes.length - 1;
  done(`loads and draws: first picture ${first.toFixed(0)} ms after the weights`);
  await shot(page, "sample");

  native("sample", model.includes("/") ? resolve(model) : model, "--out", "native.png", "--seed", "11", "--temperature", "0.8", "--count", "1");
  const sample = await pixels(page);
  const size = Math.sqrt(sample.length / 4);
  const wide = readFileSync(join(scratch, "native.png")).readUInt32BE(16);
  // The policy of the page forbids data addresses to be fetched, so an empty page reads the picture.
  const blank = await browser.newPage();
  assert.deepEqual(sample, await shrunk(blank, join(scratch, "native.png"), wide / size));
  await blank.close();
  done("the sample is the native program's, pixel for pixel");

  // A position of the bottom layer: pixels further away than its networks reach stay as they are.
  let changed = sample;
  for (let tries = 0; tries < 20 && changed.every((v, i) => v === sample[i]); tries++) {
    await click(page, 0, 0, sizes[0]);
    changed = await pixels(page);
  }
  const moved = changed.flatMap((v, i) => (v === sample[i] ? [] : [i >> 2]));
  assert.ok(moved.length > 0, "a position that is drawn anew changes pixels");
  const far = Math.max(...moved.map((i) => Math.max(i % size, Math.floor(i / size))));
  assert.ok(far < size - size / sizes[0], `a change at one corner reaches the other: ${far}`);
  done(`a position of the bottom layer is drawn anew: ${moved.length} pixels change, none further than ${far} from its corner`);
  const linked = await open(await page.evaluate(() => location.hash));
  assert.deepEqual(await pixels(linked), changed);
  await linked.close();
  done("a link restores the view");
  while (await page.isEnabled("#undo")) {
    await page.click("#undo");
    await idle(page);
  }
  assert.deepEqual(await pixels(page), sample);
  done("undo restores the picture");

  const times = [];
  for (let layer = top; layer >= 0; layer--) {
    await click(page, layer, 0, sizes[layer], ["Shift"]);
    times.push(await page.evaluate(() => Number(document.body.dataset.milliseconds)));
  }
  done(`each layer drawn anew, top first: ${times.map((t) => t.toFixed(0)).join(", ")} ms`);
  await click(page, Math.min(top, 3), 1, sizes[Math.min(top, 3)], ["Alt"]);
  assert.ok((await page.locator("#others button").count()) >= 4);
  assert.match(await page.textContent("#meaning-told"), /Given the layers above, the prior gave it/);
  await shot(page, "meaning");
  done("a code is explained by the pictures of its alternatives");
  await page.keyboard.press("u");
  await idle(page);
  await page.locator(`canvas[data-layer="${top}"]`).focus();
  const before = await page.evaluate(() => location.hash);
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("Enter");
  await idle(page);
  assert.notEqual(await page.evaluate(() => location.hash), before);
  done("keys move to a position and draw it anew");

  const plain = await open("", "?simd=no");
  assert.deepEqual(await pixels(plain), sample);
  assert.match(await plain.textContent("#timing"), /without simd128/);
  done(`without simd128 the pixels are the same: ${await plain.textContent("#timing")}`);
  await plain.close();

  const images = tenImages();
  const give = (slot, name, bytes) => page.setInputFiles(`[data-slot=${slot}] input[type=file]`, { name, mimeType: "application/octet-stream", buffer: bytes });
  await page.click("[role=tab][data-mode=image]");
  await give("image", "disc.png", images[1].bytes);
  await page.waitForSelector("#bars li");
  await idle(page);
  const whole = await pixels(page);
  await shot(page, "image");
  await page.locator("#dropped").fill(String(Math.ceil(sizes.length / 2)));
  await idle(page);
  assert.notDeepEqual(await pixels(page), whole);
  await shot(page, "dropped");
  done(`an image: ${await page.textContent("#rate")}; without its lowest layers`);
  const shared = await open(await page.evaluate(() => location.hash));
  assert.deepEqual(await pixels(shared), await pixels(page));
  await shared.close();
  done("a link carries the codes of an image");

  await page.click("[role=tab][data-mode=between]");
  await give("a", "wave.png", images[0].bytes);
  await idle(page);
  await give("b", "disc.png", images[1].bytes);
  await page.waitForTimeout(200);
  await idle(page);
  await page.locator("#share").fill("100");
  await idle(page);
  assert.deepEqual(await pixels(page), whole, "all codes of the second image are its reconstruction");
  await page.locator("#share").fill("50");
  await idle(page);
  await shot(page, "between");
  done("between two images");

  await page.click("[role=tab][data-mode=file]");
  const named = model.includes("/") ? resolve(model) : model;
  const downloaded = async (link) => {
    const [download] = await Promise.all([page.waitForEvent("download"), page.click(link)]);
    return readFileSync(await download.path());
  };
  for (const { name, bytes } of images) {
    writeFileSync(join(scratch, `${name}.png`), bytes);
    await give("compress", `${name}.png`, bytes);
    await page.waitForSelector(`#compressed a[download="${name}.rrvq"]`, { timeout: 120_000 });
    writeFileSync(join(scratch, `browser-${name}.rrvq`), await downloaded("#compressed a"));
    native("compress", `${name}.png`, "-o", `native-${name}.rrvq`, "--model", named);
    const [ours, theirs] = ["browser", "native"].map((who) => readFileSync(join(scratch, `${who}-${name}.rrvq`)));
    assert.ok(ours.equals(theirs), `${name}: ${ours.length} and ${theirs.length} bytes`);
    native("decompress", `browser-${name}.rrvq`, "-o", `copies-${name}`, "--model", named);
    await give("open", `native-${name}.rrvq`, theirs);
    await page.waitForSelector(`#images a[download="${name}.png"]`, { timeout: 120_000 });
    const opened = await downloaded("#images a");
    assert.ok(opened.equals(readFileSync(join(scratch, `copies-${name}`, `${name}.png`))), name);
  }
  await shot(page, "files");
  done("ten images: the same file from both, opened by both");

  await page.check("input[name=loss][value=codes]");
  await give("compress", "disc.png", images[1].bytes);
  await page.waitForFunction(() => document.getElementById("compressed").textContent.includes("dB"));
  const lossy = await downloaded("#compressed a");
  native("compress", "disc.png", "-o", "lossy.rrvq", "--lossy", "--model", named);
  assert.ok(lossy.equals(readFileSync(join(scratch, "lossy.rrvq"))));
  done("with loss, too");

  const good = readFileSync(join(scratch, "native-wave.rrvq"));
  for (const [name, bytes] of [["notes.rrvq", Buffer.from("these are notes")], ["short.rrvq", good.subarray(0, good.length / 2)]]) {
    await give("open", name, bytes);
    await page.waitForFunction((name) => document.getElementById("message").textContent.includes(name), name);
    assert.match(await message(page), new RegExp(`^${name} cannot be decompressed: .+`));
  }
  await shot(page, "refused");
  await give("image", "notes.png", Buffer.from("no image"));
  await page.waitForFunction(() => document.getElementById("message").textContent.includes("notes.png"));
  assert.match(await message(page), /cannot read notes.png as an image: .+ expected a PNG, JPEG or WebP file/);
  done(`bad files get a sentence: ${await message(page)}`);

  await page.emulateMedia({ colorScheme: "dark" });
  await page.click("[role=tab][data-mode=sample]");
  await idle(page);
  await shot(page, "dark");
  await page.setViewportSize({ width: 390, height: 844 });
  await shot(page, "narrow");
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "a narrow page does not scroll sideways");
  done("dark and narrow");

  const phone = await launch("phone", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true });
  try {
    await touch({ phone, address, idle, pixels, shot, done, sizes, image: images[1].bytes });
  } finally {
    await phone.close();
  }
} finally {
  await browser.close();
  server.kill();
  rmSync(scratch, { recursive: true, force: true });
}
