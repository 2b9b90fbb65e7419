// js-libp2p uses Promise.withResolvers, which Node 20 does not have yet.
Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new this((yes, no) => { resolve = yes; reject = no })
  return { promise, resolve, reject }
}
