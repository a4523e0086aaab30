// The page under fingers, on a phone: taps, swipes, a slider that is dragged, a file that is chosen.

import assert from "node:assert/strict";

export async function touch({ phone, address, idle, pixels, shot, done, sizes, image }) {
  const page = await phone.newPage();
  page.on("pageerror", (error) => { throw error; });
  await page.goto(address);
  await idle(page);
  assert.equal(await page.evaluate(() => matchMedia("(pointer: coarse)").matches), true);
  const hash = () => page.evaluate(() => location.hash);
  const fits = async () => assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing is wider than the phone");
  const devtools = await phone.newCDPSession(page);
  // A finger that goes down, moves in small steps and is lifted.
  const swipe = async (from, to) => {
    const at = (share) => ({ x: from.x + (to.x - from.x) * share, y: from.y + (to.y - from.y) * share });
    await devtools.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [from] });
    for (let step = 1; step <= 12; step++) {
      await devtools.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints: [at(step / 12)] });
      await page.waitForTimeout(16);
    }
    await devtools.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
    await page.waitForTimeout(100);
  };
  // The middle of a position of a layer, in the window, below the picture that stays at its top.
  const place = async (layer, position) => {
    const map = page.locator(`canvas[data-layer="${layer}"]`);
    await map.evaluate((canvas) => canvas.scrollIntoView({ block: "end" }));
    await page.waitForTimeout(100);
    const box = await map.boundingBox();
    const at = (place) => (place + 0.5) / sizes[layer];
    return { x: box.x + at(position % sizes[layer]) * box.width, y: box.y + at(Math.floor(position / sizes[layer])) * box.height };
  };
  const tap = async (layer, position) => {
    const { x, y } = await place(layer, position);
    await page.touchscreen.tap(x, y);
    await idle(page);
  };
  await fits();
  await shot(page, "phone");

  const before = await pixels(page);
  for (let tries = 0; tries < 5 && (await pixels(page)).every((value, at) => value === before[at]); tries++) await tap(0, 5);
  assert.notDeepEqual(await pixels(page), before, "a tap draws a position anew");
  assert.match(await hash(), /./);
  const box = await page.locator("#picture").boundingBox();
  assert.ok(box.y >= 0 && box.y + box.height <= 844, "the picture is in sight while the lowest layer is tapped");
  await shot(page, "phone-tapped");
  await page.tap("[data-tool=layer]");
  const one = await hash();
  await tap(sizes.length - 1, 0);
  assert.notEqual(await hash(), one, "a tap draws a layer anew");
  await page.tap("#undo");
  await idle(page);
  assert.equal(await hash(), one);
  done("taps draw a position and a layer anew, and undo, with the picture in sight");

  const still = await hash();
  const start = await place(0, 0);
  const scrolled = () => page.evaluate(() => scrollY);
  const high = await scrolled();
  await swipe(start, { x: start.x, y: start.y + 150 });
  assert.ok((await scrolled()) < high, "a swipe over a map scrolls the page");
  assert.equal(await hash(), still, "and draws nothing");
  const slider = await page.locator("#temperature").evaluate((input) => {
    input.scrollIntoView({ block: "center" });
    const { x, y, width, height } = input.getBoundingClientRect();
    return { x, y: y + height / 2, width, height, value: Number(input.value), most: Number(input.max) };
  });
  assert.ok(slider.height >= 40, "a finger can hit the slider");
  const thumb = slider.x + 8 + (slider.width - 16) * (slider.value / slider.most);
  await swipe({ x: thumb, y: slider.y }, { x: thumb - slider.width / 4, y: slider.y });
  await idle(page);
  assert.ok(Number(await page.inputValue("#temperature")) < slider.value - 0.1, "the slider follows the finger");
  assert.match(await hash(), /./);
  done(`a swipe scrolls, and a slider follows the finger: temperature ${slider.value} to ${await page.inputValue("#temperature")}`);

  await page.tap("[data-tool=look]");
  await tap(Math.min(3, sizes.length - 1), 1);
  assert.ok((await page.locator("#others button").count()) >= 4);
  const told = await page.locator("#meaning").boundingBox();
  assert.ok(told.y >= box.y + box.height && told.y < 700, "what a code means is in sight, below the picture");
  await shot(page, "phone-meaning");
  done("a tap explains a code");

  await page.tap("[role=tab][data-mode=image]");
  const chooser = page.waitForEvent("filechooser");
  await page.tap("[data-slot=image]");
  await (await chooser).setFiles({ name: "disc.png", mimeType: "image/png", buffer: image });
  await page.waitForSelector("#bars li");
  await idle(page);
  await fits();
  await shot(page, "phone-image");
  await page.tap("[role=tab][data-mode=file]");
  await idle(page);
  await fits();
  await shot(page, "phone-files");
  await page.emulateMedia({ colorScheme: "dark" });
  await page.tap("[role=tab][data-mode=between]");
  await idle(page);
  await fits();
  await shot(page, "phone-between-dark");
  await page.setViewportSize({ width: 320, height: 640 });
  await page.tap("[role=tab][data-mode=sample]");
  await idle(page);
  await fits();
  await shot(page, "phone-small-dark");
  done("a file is chosen by a tap; every tab fits a phone, also one of 320 pixels");
}
