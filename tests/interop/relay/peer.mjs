// Clients of @walletconnect/core, unmodified, driven by JSON lines: a command a line in, an answer or an event a line out.
import { createInterface } from "node:readline";
import { Core } from "@walletconnect/core";

class MemoryStorage {
  constructor() { this.items = new Map(); }
  async getKeys() { return [...this.items.keys()]; }
  async getEntries() { return [...this.items.entries()]; }
  async getItem(key) { return this.items.get(key); }
  async setItem(key, value) { this.items.set(key, value); }
  async removeItem(key) { this.items.delete(key); }
}

const clients = new Map();
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

const commands = {
  async open({ client, url }) {
    const core = new Core({
      relayUrl: url, projectId: "syncline-test", storage: new MemoryStorage(), customStoragePrefix: client,
      logger: "silent", telemetryEnabled: false,
    });
    await core.start();
    for (const name of ["relayer_connect", "relayer_disconnect"])
      core.relayer.on(name, () => say({ event: name, client }));
    core.relayer.on("relayer_message", ({ topic, message, publishedAt }) =>
      say({ event: "message", client, topic, message, publishedAt }));
    clients.set(client, core);
    return core.crypto.getClientId();
  },
  subscribe: ({ client, topic }) => clients.get(client).relayer.subscribe(topic),
  unsubscribe: ({ client, topic }) => clients.get(client).relayer.unsubscribe(topic),
  publish: ({ client, topic, message, ...options }) =>
    clients.get(client).relayer.publish(topic, message,
      { ttl: 300, tag: 1108, prompt: false, internal: { throwOnFailedPublish: true }, ...options }),
  request: ({ client, method, params }) => clients.get(client).relayer.request({ method, params }),
  leave: ({ client }) => clients.get(client).relayer.transportClose(),
  come: ({ client, url }) => clients.get(client).relayer.transportOpen(url),
  topics: ({ client }) => clients.get(client).relayer.subscriber.topics,
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, run, ...options } = JSON.parse(line);
  Promise.resolve().then(() => commands[run](options)).then(
    (result) => say({ id, result: result ?? null }),
    (error) => say({ id, error: error?.message ?? String(error) }),
  );
}
process.exit(0);
