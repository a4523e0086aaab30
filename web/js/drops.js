// Areas that take a file by dropping, by a click or by the keyboard.

export function takeFiles(take) {
  for (const area of document.querySelectorAll(".drop")) {
    const input = area.querySelector("input[type=file]");
    const give = async (file) => file && take(area.dataset.slot, file.name, new Uint8Array(await file.arrayBuffer()));
    area.addEventListener("click", (event) => event.target !== input && input.click());
    input.addEventListener("change", async () => {
      await give(input.files[0]);
      input.value = "";
    });
    area.addEventListener("dragover", () => area.classList.add("over"));
    area.addEventListener("dragleave", () => area.classList.remove("over"));
    area.addEventListener("drop", (event) => {
      area.classList.remove("over");
      event.preventDefault();
      event.stopPropagation();
      give(event.dataTransfer.files[0]);
    });
  }
  // Anywhere else, the kind of file says what it is for.
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    const file = event.dataTransfer.files[0];
    if (!file) return;
    const slot = file.name.endsWith(".rrvq") ? "open" : file.name.endsWith(".safetensors") ? "model" : "image";
    take(slot, file.name, new Uint8Array(await file.arrayBuffer()));
  });
}
