// A js-libp2p peer that does what it is told: one JSON command a line on stdin, one JSON answer a line on stdout.
import { createInterface } from 'node:readline'
import { createHash } from 'node:crypto'
import { floodsub } from '@libp2p/floodsub'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { noise } from '@libp2p/noise'
import { tcp } from '@libp2p/tcp'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

const node = await createLibp2p({
  addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: {
    identify: identify(),
    gossip: gossipsub({ allowPublishToZeroTopicPeers: true, fallbackToFloodsub: false }),
    flood: floodsub()
  }
})
const received = { gossip: [], flood: [] }
let wake = () => {}

const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex')
for (const router of ['gossip', 'flood']) {
  node.services[router].addEventListener('message', ({ detail }) => {
    received[router].push({
      topic: detail.topic, from: detail.from.toString(), size: detail.data.length,
      sha256: sha256(detail.data), seqno: String(detail.sequenceNumber),
      text: detail.data.length <= 1000 ? Buffer.from(detail.data).toString('base64') : null
    })
    wake()
  })
}

async function until (condition, seconds = 60) {
  const deadline = Date.now() + seconds * 1000
  while (!condition()) {
    if (Date.now() > deadline) throw new Error('waited in vain')
    await new Promise((resolve) => { wake = resolve; setTimeout(resolve, 50) })
  }
}

async function sendAll (stream, bytes) {
  for (let start = 0; start < bytes.length; start += 65536) {
    if (!stream.send(bytes.subarray(start, start + 65536))) {
      await new Promise((resolve) => stream.addEventListener('drain', resolve, { once: true }))
    }
  }
}

const commands = {
  async dial ({ address }) { await node.dial(multiaddr(address)); return {} },
  async hangUp ({ peer }) { await node.hangUp(multiaddr(`/p2p/${peer}`)); return {} },
  async subscribe ({ router, topic }) { node.services[router].subscribe(topic); return {} },
  async unsubscribe ({ router, topic }) { node.services[router].unsubscribe(topic); return {} },
  async awaitSubscribers ({ router, topic, count }) {
    await until(() => node.services[router].getSubscribers(topic).length >= count)
    return {}
  },
  async publish ({ router, topic, data, times = 1 }) {
    const bytes = Buffer.from(data, 'base64')
    for (let i = 0; i < times; i++) {
      const body = times === 1 ? bytes : Buffer.concat([bytes, Buffer.from(String(i))])
      await node.services[router].publish(topic, body)
      if (i % 20 === 19) await new Promise((resolve) => setTimeout(resolve, 1))
    }
    return {}
  },
  async received ({ router, count }) {
    await until(() => received[router].length >= count)
    return { messages: received[router] }
  },
  async echo ({ protocol }) {
    await node.handle(protocol, async (stream) => {
      for await (const chunk of stream) await sendAll(stream, chunk.subarray())
      await stream.close()
    })
    return {}
  },
  async exchange ({ address, protocol, data }) {
    const stream = await node.dialProtocol(multiaddr(address), protocol)
    const bytes = Buffer.from(data, 'base64')
    const back = []
    let size = 0
    const reading = (async () => {
      for await (const chunk of stream) {
        back.push(chunk.subarray())
        size += chunk.byteLength
        if (size >= bytes.length) return
      }
    })()
    await sendAll(stream, bytes)
    await reading
    await stream.close()
    return { size, sha256: sha256(Buffer.concat(back)) }
  },
  async peers () {
    return { peers: node.getConnections().map((c) => ({ peer: c.remotePeer.toString(), direction: c.direction })) }
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
