// The tab of files: images to .rrvq and back.

const $ = (id) => document.getElementById(id);
const grouped = (number) => number.toLocaleString("en");

function download(bytes, name, kind) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type: kind }));
  link.download = name;
  link.textContent = name;
  return link;
}

const stem = (name) => name.replace(/\.[^.]*$/, "") || "image";

export async function compress(engine, name, bytes) {
  const lossy = document.querySelector("input[name=loss]:checked").value === "codes";
  const drop = lossy ? Math.max(0, Math.trunc(Number($("leave-out").value) || 0)) : null;
  $("compressed").textContent = `compressing ${name} …`;
  try {
    const found = await engine.ask({ ask: "compress", name, drop }, bytes);
    const times = found.samples / found.bytes.length;
    const quality = found.squared_error === null ? "lossless, read back and compared" : `${(10 * Math.log10((65025 * found.samples) / Math.max(1, found.squared_error))).toFixed(2)} dB (PSNR)`;
    const link = download(found.bytes, `${stem(name)}.rrvq`, "application/octet-stream");
    $("compressed").replaceChildren(link, `: ${grouped(found.bytes.length)} bytes, ${times.toFixed(1)} times smaller than ${grouped(found.samples)} bytes of samples; ${quality}; ${(found.milliseconds / 1000).toFixed(1)} s`);
  } catch (error) {
    $("compressed").textContent = "";
    throw error;
  }
}

export async function open(engine, name, bytes) {
  $("opened").textContent = `opening ${name} …`;
  $("images").replaceChildren();
  try {
    const found = await engine.ask({ ask: "decompress", name }, bytes);
    let at = 0;
    for (const { name, width, height, png } of found.images) {
      const link = download(found.bytes.slice(at, at + png), `${name}.png`, "image/png");
      at += png;
      const image = document.createElement("img");
      image.src = link.href;
      image.alt = name;
      image.width = Math.max(width, Math.min(320, width * 6));
      const figure = document.createElement("figure");
      figure.style.margin = "0";
      const caption = document.createElement("figcaption");
      caption.append(link, ` · ${width} × ${height}`);
      figure.append(image, caption);
      $("images").append(figure);
    }
    $("opened").textContent = `${name}: ${found.images.length} image${found.images.length === 1 ? "" : "s"} from ${grouped(bytes.length)} bytes, ${(found.milliseconds / 1000).toFixed(1)} s`;
  } catch (error) {
    $("opened").textContent = "";
    throw error;
  }
}
