// One side of the `svs` benchmark with NDNts: node bench.mjs publisher|subscriber PORT COUNT ACK_FD
// Publications of 100 bytes under /bench/<i>; the publisher keeps 64 on the way, told by single bytes on ACK_FD which
// the subscriber writes from its callback. Everything is signed and verified with DigestSha256.
import fs from "node:fs";
import net from "node:net";

import { Forwarder } from "@ndn/fw";
import { L3Face, StreamTransport } from "@ndn/l3face";
import { TcpTransport } from "@ndn/node-transport";
import { digestSigning, Name } from "@ndn/packet";
import { SvPublisher, SvSubscriber, SvSync } from "@ndn/svs";

import { MapStore } from "./store.mjs";

const [role, port, count, ackFd] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const GROUP = new Name("/bench-room");
const WINDOW = 64;
const PAYLOAD = new Uint8Array(100).fill(7);
const say = (document) => process.stdout.write(JSON.stringify(document) + "\n");
const makeSync = () => SvSync.create({
  syncPrefix: GROUP, suppressionPeriod: 200, signer: digestSigning, verifier: digestSigning,
});

async function publish() {
  const server = net.createServer({ noDelay: true }, (socket) => {
    const face = Forwarder.getDefault().addFace(new L3Face(new StreamTransport(socket)));
    face.addRoute(GROUP);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const publisher = new SvPublisher({
    sync: await makeSync(), id: new Name("/publisher"), store: new MapStore(),
    innerSigner: digestSigning, outerSigner: digestSigning, mappingSigner: digestSigning,
  });
  say({ port: server.address().port });
  await new Promise((resolve) => process.stdin.once("data", resolve));
  let acknowledged = 0;
  let wake = () => undefined;
  fs.createReadStream("", { fd: ackFd, highWaterMark: 65536 }).on("data", (chunk) => {
    acknowledged += chunk.length;
    wake();
  });
  const until = async (target) => {
    while (acknowledged < target) {
      await new Promise((resolve) => { wake = resolve; });
    }
  };
  const begun = performance.now();
  for (let index = 0; index < count; ++index) {
    await until(index - WINDOW + 1);
    await publisher.publish(new Name(`/bench/${index}`), PAYLOAD);
  }
  await until(count);
  const seconds = (performance.now() - begun) / 1000;
  const { user, system } = process.cpuUsage();
  say({ seconds, acknowledged, cpu: (user + system) / 1e6 });
  process.exit(0);
}

async function subscribe() {
  await TcpTransport.createFace({ fw: Forwarder.getDefault(), addRoutes: [new Name("/")] }, "127.0.0.1", port);
  const subscriber = new SvSubscriber({
    sync: await makeSync(), innerVerifier: digestSigning, outerVerifier: digestSigning, mappingVerifier: digestSigning,
  });
  const seen = new Set();
  subscriber.addEventListener("error", ({ detail }) => console.error(String(detail)));
  subscriber.subscribe(new Name("/bench")).addEventListener("update", ({ name, payload }) => {
    if (payload.length === PAYLOAD.length && payload.every((byte) => byte === 7)) {
      seen.add(name.valueHex);
      fs.writeSync(ackFd, "x");
    }
    if (seen.size === count) {
      say({ distinct: seen.size });
    }
  });
  setTimeout(() => say({ ready: true }), 500);
  process.stdin.on("end", () => process.exit(0)).resume();
}

await (role === "publisher" ? publish() : subscribe());
