// An SDS exchange peer of its own: js-libp2p, the FlatBuffers runtime and npm's space data library, written from the
// specification. One JSON command a line on stdin, one JSON answer a line on stdout.
import { createHash } from 'node:crypto'
import { createInterface } from 'node:readline'
import { generateKeyPair, publicKeyFromRaw } from '@libp2p/crypto/keys'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { noise } from '@libp2p/noise'
import { peerIdFromString } from '@libp2p/peer-id'
import { tcp } from '@libp2p/tcp'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import * as flatbuffers from 'flatbuffers'
import { createLibp2p } from 'libp2p'
import { readFB, standards, writeFB } from 'spacedatastandards.org'

const PROTOCOL = '/spacedatanetwork/sds-exchange/1.0.0'
const key = await generateKeyPair('Ed25519')
const node = await createLibp2p({
  privateKey: key,
  addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: { identify: identify(), gossip: gossipsub({ allowPublishToZeroTopicPeers: true }) }
})
const received = []
const mine = []
let following
node.services.gossip.addEventListener('message', ({ detail }) => received.push(Buffer.from(detail.data)))

// Tables: [slot, kind, value]
function table (builder, slots, fields) {
  const made = fields.map(([slot, kind, value]) => {
    if (kind === 'string') return [slot, 'offset', builder.createString(value)]
    if (kind === 'bytes') return [slot, 'offset', bytes(builder, value)]
    if (kind === 'strings') return [slot, 'offset', offsets(builder, value.map((each) => builder.createString(each)))]
    if (kind === 'tables') return [slot, 'offset', offsets(builder, value.map((each) => table(builder, ...each)))]
    if (kind === 'table') return [slot, 'offset', table(builder, ...value)]
    return [slot, kind, value]
  })
  builder.startObject(slots)
  for (const [slot, kind, value] of made) {
    if (kind === 'offset') builder.addFieldOffset(slot, value, 0)
    if (kind === 'u32') builder.addFieldInt32(slot, value, 0)
    if (kind === 'bool' || kind === 'u8') builder.addFieldInt8(slot, +value, 0)
  }
  return builder.endObject()
}

function bytes (builder, value) {
  builder.startVector(1, value.length, 1)
  for (let i = value.length - 1; i >= 0; i--) builder.addInt8(value[i])
  return builder.endVector()
}

function offsets (builder, values) {
  builder.startVector(4, values.length, 4)
  for (let i = values.length - 1; i >= 0; i--) builder.addOffset(values[i])
  return builder.endVector()
}

function frame (identifier, slots, fields) {
  const builder = new flatbuffers.Builder(1024)
  builder.finishSizePrefixed(table(builder, slots, fields), identifier)
  return Buffer.from(builder.asUint8Array())
}

// Reading: a table at a position, with accessors by slot.
class Table {
  constructor (bb, at) { this.bb = bb; this.at = at }
  static root (frame) {
    const bb = new flatbuffers.ByteBuffer(new Uint8Array(frame))
    return new Table(bb, bb.readInt32(4) + 4)
  }
  place (slot) { const offset = this.bb.__offset(this.at, 4 + 2 * slot); return offset ? this.at + offset : 0 }
  string (slot) { const at = this.place(slot); return at ? this.bb.__string(at) : '' }
  u32 (slot) { const at = this.place(slot); return at ? this.bb.readUint32(at) : 0 }
  u8 (slot) { const at = this.place(slot); return at ? this.bb.readUint8(at) : 0 }
  u16 (slot) { const at = this.place(slot); return at ? this.bb.readUint16(at) : 0 }
  bytes (slot) {
    const at = this.place(slot)
    if (!at) return Buffer.alloc(0)
    const start = this.bb.__vector(at)
    return Buffer.from(this.bb.bytes().subarray(start, start + this.bb.__vector_len(at)))
  }
  list (slot) {
    const at = this.place(slot)
    if (!at) return []
    const start = this.bb.__vector(at)
    return Array.from({ length: this.bb.__vector_len(at) }, (_, i) => start + 4 * i)
  }
  strings (slot) { return this.list(slot).map((at) => this.bb.__string(at)) }
  tables (slot) { return this.list(slot).map((at) => new Table(this.bb, this.bb.__indirect(at))) }
}
const identifierOf = (frame) => frame.subarray(8, 12).toString()

function signed (message) {
  const parts = [message.message_id, message.timestamp, String(message.ttl), message.schema, message.publisher_id, message.payload]
  const out = [Buffer.from('sds-exchange/1.0.0\0')]
  for (const part of parts.map((each) => Buffer.from(each))) {
    const length = Buffer.alloc(4)
    length.writeUInt32LE(part.length)
    out.push(length, part)
  }
  return Buffer.concat(out)
}
const idOf = (message) => createHash('sha256').update(signed(message)).digest('hex')

async function published (schema, fields, ttl) {
  const made = Object.assign(new standards[schema][`${schema}T`](), fields)
  const message = {
    message_id: `js-${mine.length}`,
    timestamp: new Date().toISOString(),
    ttl,
    schema,
    payload: Buffer.from(writeFB(made)),
    publisher_id: node.peerId.toString()
  }
  message.signature = Buffer.from(await key.sign(signed(message)))
  mine.push(message)
  return message
}

const publishFrame = (m) => frame('SPUB', 7, [
  [0, 'string', m.message_id], [1, 'string', m.timestamp], [2, 'u32', m.ttl], [3, 'string', m.schema],
  [4, 'bytes', m.payload], [5, 'string', m.publisher_id], [6, 'bytes', m.signature]
])
const helloFrame = () => frame('SHEL', 3, [[0, 'string', '1.0.0'], [1, 'strings', ['OMM', 'CDM']], [2, 'strings', ['filter.v1']]])
const heldTable = (m) => [8, [
  [0, 'string', m.schema], [1, 'bytes', m.payload], [2, 'string', m.timestamp], [3, 'string', m.publisher_id],
  [4, 'bytes', m.signature], [5, 'string', m.message_id], [6, 'string', m.timestamp], [7, 'u32', m.ttl]
]]
const responseFrame = (query) => frame('SRSP', 6, [
  [0, 'string', query], [1, 'u32', mine.length], [2, 'u32', mine.length], [3, 'tables', mine.map(heldTable)]
])

function readMessage (table, slots) {
  const [id, time, ttl, schema, payload, publisher, signature] = slots
  return {
    message_id: table.string(id), timestamp: table.string(time), ttl: table.u32(ttl), schema: table.string(schema),
    payload: table.bytes(payload), publisher_id: table.string(publisher), signature: table.bytes(signature)
  }
}

async function examined (message) {
  const peer = peerIdFromString(message.publisher_id)
  const verified = await publicKeyFromRaw(peer.publicKey.raw).verify(signed(message), message.signature)
  const [fields] = readFB(new Uint8Array(message.payload))
  return { id: idOf(message), publisher: message.publisher_id, schema: message.schema, verified, fields }
}

// A stream as frames.
async function * frames (stream) {
  let left = Buffer.alloc(0)
  for await (const chunk of stream) {
    left = Buffer.concat([left, Buffer.from(chunk.subarray())])
    while (left.length >= 4 && left.length >= 4 + left.readUInt32LE(0)) {
      const size = 4 + left.readUInt32LE(0)
      yield left.subarray(0, size)
      left = left.subarray(size)
    }
  }
}

// The bloom filter of SYNC, version 1.
function places (id, hashes, bits) {
  const digest = Buffer.from(id, 'hex')
  const first = digest.readBigUInt64LE(0)
  const step = digest.readBigUInt64LE(8) | 1n
  return Array.from({ length: hashes }, (_, i) => Number(BigInt.asUintN(64, first + BigInt(i) * step) % BigInt(bits)))
}
const isHeld = (id, filter, hashes) => filter.length > 0 &&
  places(id, hashes, 8 * filter.length).every((place) => filter[place >> 3] >> (place & 7) & 1)
function bloomOf (ids) {
  const filter = Buffer.alloc(Math.max(8, 2 * ids.length))
  for (const place of ids.flatMap((id) => places(id, 7, 8 * filter.length))) filter[place >> 3] |= 1 << (place & 7)
  return filter
}
const syncFrame = (name, records) => frame('SSYR', 3, [
  [0, 'string', name], [1, 'tables', records.map(heldTable)], [2, 'bool', false]
])
const ackFrame = (name) => frame('SACK', 2, [[0, 'string', name]])

const followers = []
const asks = []
await node.handle(PROTOCOL, async (stream) => {
  stream.send(helloFrame())
  for await (const each of frames(stream)) {
    const kind = identifierOf(each)
    const request = Table.root(each)
    asks.push(kind)
    if (kind === 'SQRY') stream.send(responseFrame(request.string(0)))
    if (kind === 'SSUB') {
      const schemas = request.strings(1)
      stream.send(ackFrame(request.string(0)))
      const past = request.u8(3) ? mine.filter((message) => schemas.includes(message.schema)) : []
      for (const message of past.slice(-request.u32(4))) stream.send(publishFrame(message))
      followers.push({ stream, schemas })
    }
    if (kind === 'SUNS') stream.send(ackFrame(request.string(0)))
    if (kind === 'SSYN') {
      const filter = request.bytes(3)
      const missing = mine.filter((message) => !isHeld(idOf(message), filter, request.u8(4)))
      stream.send(syncFrame(request.string(0), missing))
    }
  }
})

async function asked (address, requests, until) {
  const stream = await node.dialProtocol(multiaddr(address), PROTOCOL)
  for (const each of [helloFrame(), ...requests]) stream.send(each)
  const heard = []
  for await (const each of frames(stream)) {
    heard.push(Buffer.from(each))
    if (identifierOf(each) === until || identifierOf(each) === 'SERR') break
  }
  await stream.close()
  return heard
}

const commands = {
  async dial ({ address }) { await node.dial(multiaddr(address)); return {} },
  async join ({ topic }) { node.services.gossip.subscribe(topic); return {} },
  async neighbours ({ topic }) {
    while (node.services.gossip.getMeshPeers(topic).length < 1) await new Promise((resolve) => setTimeout(resolve, 50))
    return {}
  },
  async make ({ schema, fields, ttl = 0 }) {
    const message = await published(schema, fields, ttl)
    for (const { stream, schemas } of followers) if (schemas.includes(schema)) stream.send(publishFrame(message))
    return { id: idOf(message) }
  },
  async asks () { return { asks } },
  async follow ({ address, schemas, history }) {
    const stream = await node.dialProtocol(multiaddr(address), PROTOCOL)
    const pushes = []
    const subscribe = frame('SSUB', 5, [
      [0, 'string', 'js-s'], [1, 'strings', schemas], [3, 'bool', history > 0], [4, 'u32', history]
    ])
    for (const each of [helloFrame(), subscribe]) stream.send(each)
    const kinds = []
    const reading = (async () => {
      for await (const each of frames(stream)) {
        kinds.push(identifierOf(each))
        if (kinds.at(-1) === 'SPUB') pushes.push(readMessage(Table.root(each), [0, 1, 2, 3, 4, 5, 6]))
      }
    })()
    following = { stream, pushes, kinds, reading }
    return {}
  },
  async pushed ({ count }) {
    while (following.pushes.length < count) await new Promise((resolve) => setTimeout(resolve, 20))
    return { messages: await Promise.all(following.pushes.map(examined)), kinds: following.kinds }
  },
  async unfollow () {
    following.stream.send(frame('SUNS', 1, [[0, 'string', 'js-s']]))
    while (following.kinds.filter((kind) => kind === 'SACK').length < 2) await new Promise((resolve) => setTimeout(resolve, 20))
    return { kinds: following.kinds }
  },
  async sync ({ address, schemas }) {
    const request = frame('SSYN', 5, [
      [0, 'string', 'js-y'], [1, 'strings', schemas], [3, 'bytes', bloomOf(mine.map(idOf))], [4, 'u8', 7]
    ])
    const heard = await asked(address, [request], 'SSYR')
    const records = Table.root(heard.at(-1)).tables(1).map((each) => readMessage(each, [5, 6, 7, 0, 1, 3, 4]))
    return { kinds: heard.map(identifierOf), records: await Promise.all(records.map(examined)) }
  },
  async gossip ({ topic, schema, fields, ttl = 0 }) {
    const message = await published(schema, fields, ttl)
    await node.services.gossip.publish(topic, publishFrame(message))
    return { id: idOf(message) }
  },
  async heard ({ count }) {
    while (received.length < count) await new Promise((resolve) => setTimeout(resolve, 50))
    const slots = [0, 1, 2, 3, 4, 5, 6]
    return { messages: await Promise.all(received.map((each) => examined(readMessage(Table.root(each), slots)))) }
  },
  async publish ({ address, schema, fields }) {
    const message = await published(schema, fields, 0)
    const heard = await asked(address, [publishFrame(message)], 'SACK')
    const last = Table.root(heard.at(-1))
    return { id: idOf(message), kinds: heard.map(identifierOf), request: last.string(0) }
  },
  async query ({ address, schema, field, value }) {
    const filter = [5, [[0, 'string', field], [1, 'string', 'eq'], [2, 'string', value]]]
    const query = frame('SQRY', 8, [[0, 'string', 'js-q'], [1, 'string', schema], [2, 'table', filter], [7, 'bool', true]])
    const heard = await asked(address, [query], 'SRSP')
    const answer = Table.root(heard.at(-1))
    if (identifierOf(heard.at(-1)) === 'SERR') return { code: answer.u16(0), message: answer.string(1), request: answer.string(2) }
    const slots = [5, 6, 7, 0, 1, 3, 4]
    const records = answer.tables(3).map((each) => readMessage(each, slots))
    const hello = Table.root(heard[0])
    return {
      kinds: heard.map(identifierOf), version: hello.string(0), total: answer.u32(1),
      records: await Promise.all(records.map(examined))
    }
  }
}

const say = (object) => process.stdout.write(JSON.stringify(object) + '\n')
say({ ready: true, peer: node.peerId.toString(), address: node.getMultiaddrs()[0].toString() })
for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...options } = JSON.parse(line)
  try {
    say({ ok: true, ...await commands[name](options) })
  } catch (error) {
    say({ ok: false, error: `${error.name}: ${error.message}` })
  }
}
process.exit(0)
