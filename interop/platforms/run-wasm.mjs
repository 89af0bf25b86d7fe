// Runs the tests of a package in WebAssembly: node run-wasm.mjs FILE
//
// WebAssembly has no output. A failed test aborts, and its name is in the stack trace.

import { readFileSync } from "node:fs";

const file = process.argv[2];
const module = new WebAssembly.Module(readFileSync(file));
const imports = {
  env: {
    // The source of random numbers that the crate `getrandom` calls.
    __getrandom_v03_custom(address, length) {
      crypto.getRandomValues(new Uint8Array(exports.memory.buffer, address, length));
      return 0;
    },
  },
};
const { exports } = new WebAssembly.Instance(module, imports);
const status = exports.main(0, 0);
console.log(`${file.split("/").at(-1)}: ${status === 0 ? "ok" : `status ${status}`}`);
process.exitCode = status;
