// js-libp2p's side of `syncline bench gossip` and `syncline bench flood`: one publisher or one subscriber in a process.
// It is told `start` and `stop` on stdin and prints JSON lines, as the workers of syncline.bench.pubsub do.
import { createInterface } from 'node:readline'
import { floodsub } from '@libp2p/floodsub'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { noise } from '@libp2p/noise'
import { tcp } from '@libp2p/tcp'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'

const [role, router, size, warmUp, count, address] = process.argv.slice(2)
const TOPIC = '/bench/1'
const QUEUED = 1 << 20 // js-libp2p aborts a stream that falls too far behind: wait before that, at no cost in CPU

const node = await createLibp2p({
  addresses: { listen: role === 'subscribe' ? ['/ip4/127.0.0.1/tcp/0'] : [] },
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: { identify: identify(), pubsub: router === 'gossip' ? gossipsub() : floodsub() }
})
const pubsub = node.services.pubsub
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const say = (object) => process.stdout.write(JSON.stringify(object) + '\n')
const told = async (word) => { if ((await lines.next()).value !== word) process.exit(1) }
const cpu = () => { const { user, system } = process.cpuUsage(); return user + system }
const turn = () => new Promise((resolve) => setImmediate(resolve))

let received = 0
let reached = () => {}
let wanted = Infinity
const receivedAll = (number) => new Promise((resolve) => { wanted = number; reached = resolve; if (received >= number) resolve() })
if (role === 'subscribe') {
  pubsub.addEventListener('message', () => { if (++received >= wanted) reached() })
  pubsub.subscribe(TOPIC)
  say({ address: node.getMultiaddrs()[0].toString() })
} else {
  await node.dial(multiaddr(address))
  while (pubsub.getSubscribers(TOPIC).length === 0) await new Promise((resolve) => setTimeout(resolve, 20))
  await new Promise((resolve) => setTimeout(resolve, 1500)) // a heartbeat, so that the mesh stands
  say({ ready: true })
}

const data = new Uint8Array(Number(size)).map((_, index) => index * 7 % 251)
const outbound = () => node.getConnections()[0].streams.find((stream) => stream.direction === 'outbound' && /sub/.test(stream.protocol))
async function publish (number) {
  const stream = outbound()
  for (let i = 0; i < number; i++) {
    await pubsub.publish(TOPIC, data)
    if (i % 64 === 63) await turn()
    while (stream.writeBufferLength > QUEUED) await turn()
  }
}

let before = 0
for (const number of [Number(warmUp), Number(count)]) {
  await told('start')
  const begun = cpu()
  if (role === 'publish') await publish(number)
  else { await receivedAll(before + number); before += number; say({ received: number }) }
  await told('stop')
  say({ cpu: cpu() - begun, received })
}
process.exit(0)
