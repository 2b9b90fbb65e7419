// A store for NDNts publishers that finds packets in constant time; the one in @ndn/repo-api searches an array.
import { DataStore } from "@ndn/repo-api";

const FIRST = "360100320100"; // v=0, seg=0

export class MapStore {
  #packets = new Map();

  async insert(...args) {
    const { pkts } = DataStore.Insert.parseArgs(args);
    for await (const data of pkts) {
      this.#packets.set(data.name.valueHex.toLowerCase(), data);
    }
  }

  async get(name) {
    return this.#packets.get(name.valueHex.toLowerCase());
  }

  async find(interest) {
    const name = interest.name.valueHex.toLowerCase();
    return this.#packets.get(name) ?? (interest.canBePrefix ? this.#packets.get(name + FIRST) : undefined);
  }
}
