// Unpacks every OMM of a file with npm's own library, several times over, and prints the best rate and what it saw.
//   node unpack.mjs FILE PASSES
import { readFileSync } from 'node:fs';
import * as flatbuffers from 'flatbuffers';
import { standards } from 'spacedatastandards.org';

const { OMM } = standards.OMM;
const bytes = new Uint8Array(readFileSync(process.argv[2]));
const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
const payloads = [];
for (let at = 0; at < bytes.length; ) {
  const size = 4 + view.getUint32(at, true);
  payloads.push(bytes.subarray(at, at + size));
  at += size;
}

// Of each stretch of payloads the shortest time of all passes counts: noise only ever adds.
const STRETCH = 10_000;
const best = [];
let seen;

function pass() {
  let numbers = 0;
  let motion = 0;
  let letters = 0;
  for (let first = 0; first < payloads.length; first += STRETCH) {
    const end = Math.min(first + STRETCH, payloads.length);
    const start = process.hrtime.bigint();
    for (let at = first; at < end; at += 1) {
      const message = OMM.getSizePrefixedRootAsOMM(new flatbuffers.ByteBuffer(payloads[at])).unpack();
      numbers += message.NORAD_CAT_ID;
      motion += message.MEAN_MOTION;
      letters += message.EPOCH.length;
    }
    const seconds = Number(process.hrtime.bigint() - start) / 1e9;
    best[first / STRETCH] = Math.min(best[first / STRETCH] ?? Infinity, seconds);
  }
  return { numbers, motion, letters };
}

for (let i = 0; i < Number(process.argv[3]); i += 1) seen = pass();
const seconds = best.reduce((sum, each) => sum + each, 0);
process.stdout.write(JSON.stringify({ rows: payloads.length, seconds, ...seen }));
