// What JavaScript peers of SDSP do with deltas. Reads {task, cases}, writes one answer per case; null: it cannot.
import { decode as decodeVcdiff } from '@ably/vcdiff-decoder'
import DiffMatchPatch from 'diff-match-patch'
import jsonpatch from 'fast-json-patch'

const dmp = new DiffMatchPatch()

const canonical = (value) => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`
  if (value === null || typeof value !== 'object') return JSON.stringify(value)
  const members = Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`)
  return `{${members.join(',')}}`
}

const tasks = {
  jpApply: ({ old, delta }) => jsonpatch.applyPatch(old, delta, true).newDocument,
  jpMake: ({ old, next }) => jsonpatch.compare(old, next),
  mdApply: ({ old, delta }) => dmp.diff_text2(dmp.diff_fromDelta(old, delta)),
  mdMake: ({ old, next }) => {
    const parts = dmp.diff_main(old, next)
    dmp.diff_cleanupEfficiency(parts)
    try {
      return dmp.diff_toDelta(parts)
    } catch (error) {
      if (error instanceof URIError) return null // it split a surrogate pair and cannot write half of one
      throw error
    }
  },
  vcdiffApply: ({ old, delta }) =>
    Buffer.from(decodeVcdiff(Buffer.from(delta, 'base64'), Buffer.from(old, 'base64'))).toString('base64'),
  canonical: ({ text }) => canonical(JSON.parse(text))
}

const chunks = []
for await (const chunk of process.stdin) chunks.push(chunk)
const { task, cases } = JSON.parse(Buffer.concat(chunks).toString())
process.stdout.write(JSON.stringify(cases.map(tasks[task])))
