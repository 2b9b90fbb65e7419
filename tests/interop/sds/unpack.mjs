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

function pass() {
  let numbers = 0;
  let motion = 0;
  let letters = 0;
  const start = process.hrtime.bigint();
  for (const payload of payloads) {
    const message = OMM.getSizePrefixedRootAsOMM(new flatbuffers.ByteBuffer(payload)).unpack();
    numbers += message.NORAD_CAT_ID;
    motion += message.MEAN_MOTION;
    letters += message.EPOCH.length;
  }
  return { seconds: Number(process.hrtime.bigint() - start) / 1e9, numbers, motion, letters };
}

let best = pass();
for (let i = 1; i < Number(process.argv[3]); i += 1) {
  const next = pass();
  if (next.seconds < best.seconds) best = next;
}
process.stdout.write(JSON.stringify({ rows: payloads.length, ...best }));
