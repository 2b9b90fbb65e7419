// An NDNts member of a group, as its own process. Takes and says JSON, one document a line.
//   argument   {"address": "tcp://127.0.0.1:6363", "group": "/g", "node": "/ndnts/a", "keys": {"sync": "base64", …}}
//   takes      {"publish": "/name", "size": 20000} | {"publish": "/name", "text": "hi", "timed": true}
//              {"subscribe": "/prefix"} | {"producer": "/node"} | {"vector": true}
//   says       {"ready": true} {"published": 1} {"subscribed": "/prefix"} {"vector": {"/node": 3}}
//              {"update": {"by": "/node", "seq": 1, "name": "/name", "size": 2, "sha256": "…"}} {"error": "…"}
import { createHash } from "node:crypto";
import readline from "node:readline";

import { Forwarder } from "@ndn/fw";
import { enableNfdPrefixReg } from "@ndn/nfdmgmt";
import { TcpTransport, UnixTransport } from "@ndn/node-transport";
import { digestSigning, LLSign, LLVerify, Name, SigType, Signer, Verifier } from "@ndn/packet";
import { MappingEntry, SvPublisher, SvSubscriber, SvSync, TimedMappingEntry } from "@ndn/svs";
import { toUtf8 } from "@ndn/util";
import { WsTransport } from "@ndn/ws-transport";

import { MapStore } from "./store.mjs";

const { address, group, node, keys = {}, timed = false } = JSON.parse(process.argv[2]);
const say = (document) => process.stdout.write(JSON.stringify(document) + "\n");
process.on("unhandledRejection", (error) => say({ error: String(error) }));

// A shared secret without a name: NDNts' own keychain would insist on one and the same KeyLocator.
async function keyed(role) {
  if (!keys[role]) {
    return digestSigning;
  }
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const secret = Buffer.from(keys[role], "base64");
  const key = await crypto.subtle.importKey("raw", secret, algorithm, false, ["sign", "verify"]);
  return {
    sign(packet) {
      Signer.putSigInfo(packet, SigType.HmacWithSha256, false);
      return packet[LLSign.OP](async (input) => new Uint8Array(await crypto.subtle.sign("HMAC", key, input)));
    },
    verify(packet) {
      Verifier.checkSigType(packet, SigType.HmacWithSha256);
      return packet[LLVerify.OP](async (input, value) => {
        Verifier.throwOnBadSig(await crypto.subtle.verify("HMAC", key, value, input));
      });
    },
  };
}

async function attach() {
  const url = new URL(address);
  const options = { fw: Forwarder.getDefault(), addRoutes: [new Name("/")], l3: { local: true } };
  if (url.protocol === "unix:") {
    return UnixTransport.createFace(options, url.pathname);
  }
  if (url.protocol === "ws:") {
    return WsTransport.createFace(options, address);
  }
  return TcpTransport.createFace(options, url.hostname, Number(url.port));
}

const [ofSync, ofOuter, ofInner, ofMapping] = await Promise.all(["sync", "outer", "inner", "mapping"].map(keyed));

const face = await attach();
enableNfdPrefixReg(face);
const sync = await SvSync.create({
  syncPrefix: new Name(group),
  suppressionPeriod: 200,
  signer: ofSync,
  verifier: ofSync,
});
sync.addEventListener("rxerror", ({ detail: [, error] }) => say({ error: `sync ${error}` }));
const publisher = new SvPublisher({
  sync, id: new Name(node), store: new MapStore(),
  innerSigner: ofInner, outerSigner: ofOuter, mappingSigner: ofMapping,
  pOpts: { announcement: new Name(node).append(...new Name(group).comps) },
});
const subscriber = new SvSubscriber({
  sync, innerVerifier: ofInner, outerVerifier: ofOuter, mappingVerifier: ofMapping,
  ...(timed ? { mappingEntryType: TimedMappingEntry, mustFilterByMapping: true } : {}),
});
subscriber.addEventListener("error", ({ detail }) => say({ error: String(detail) }));

function heard({ publisher: by, seqNum: seq, name, payload }) {
  const sha256 = createHash("sha256").update(payload).digest("hex");
  say({ update: { by: String(by), seq, name: String(name), size: payload.length, sha256 } });
}

async function obey(document) {
  if (document.publish) {
    const payload = document.text === undefined
      ? Uint8Array.from({ length: document.size }, (_, index) => index % 251)
      : toUtf8(document.text);
    const entry = document.timed ? new TimedMappingEntry() : new MappingEntry();
    say({ published: await publisher.publish(new Name(document.publish), payload, entry) });
  } else if (document.subscribe) {
    subscriber.subscribe(new Name(document.subscribe)).addEventListener("update", heard);
    say({ subscribed: document.subscribe });
  } else if (document.producer) {
    subscriber.subscribe({ publisher: new Name(document.producer) }).addEventListener("update", heard);
    say({ subscribed: document.producer });
  } else if (document.vector) {
    const vector = Object.fromEntries(Array.from(sync.currentStateVector, ([id, seq]) => [String(id), seq]));
    say({ vector });
  }
}

readline.createInterface({ input: process.stdin }).on("line", (line) => void obey(JSON.parse(line)));
setTimeout(() => say({ ready: true }), 300); // prefixes are registered in the background
