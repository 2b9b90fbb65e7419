// A peer that speaks Space Data Standards with npm's own library. One JSON request per line, one JSON answer per line.
//   {"write": {"$type": "OMM", ...}}   -> {"hex": "..."}     made by writeFB
//   {"read": "hex"}                    -> {"value": {...}}   made by readFB
import { createInterface } from 'node:readline';
import { readFB, standards, writeFB } from 'spacedatastandards.org';

// JSON has no word for numbers that are not finite.
const fromJson = (value) => (value && value.$float ? Number(value.$float) : value);
const toJson = (value) => (typeof value === 'number' && !Number.isFinite(value) ? { $float: String(value) } : value);

function build(value, library) {
  if (Array.isArray(value)) return value.map((each) => build(each, library));
  if (!value || !value.$type) return fromJson(value);
  const made = new library[`${value.$type}T`]();
  for (const [name, each] of Object.entries(value)) {
    if (name === '$type') continue;
    if (!(name in made)) throw new Error(`${value.$type} has no ${name}`);
    made[name] = build(each, library);
  }
  return made;
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== 'object') return toJson(value);
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]));
}

function answer(request) {
  if (request.write) {
    const library = standards[request.write.$type];
    return { hex: Buffer.from(writeFB(build(request.write, library))).toString('hex') };
  }
  const [value] = readFB(new Uint8Array(Buffer.from(request.read, 'hex')));
  return { value: plain(value) };
}

for await (const line of createInterface({ input: process.stdin })) {
  let reply;
  try {
    reply = answer(JSON.parse(line));
  } catch (error) {
    reply = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(reply)}\n`);
}
