// The program in its worker, as promises.

export class Engine {
  #worker;
  #waiting = new Map();
  #count = 0;

  constructor() {
    const address = new URL("worker.js", import.meta.url);
    address.search = location.search;
    this.#worker = new Worker(address, { type: "module" });
    this.#worker.onmessage = ({ data }) => {
      const { resolve, reject } = this.#waiting.get(data.number);
      this.#waiting.delete(data.number);
      if (data.error) reject(new Error(data.error));
      else resolve(data.found);
    };
    this.#worker.onerror = (event) => {
      const error = new Error(`the program cannot run here: ${event.message ?? "its worker did not start"}`);
      for (const { reject } of this.#waiting.values()) reject(error);
      this.#waiting.clear();
    };
  }

  ask(question, bytes) {
    return new Promise((resolve, reject) => {
      const number = this.#count++;
      this.#waiting.set(number, { resolve, reject });
      this.#worker.postMessage({ number, question, bytes });
    });
  }
}
