// Our own checks of node-redis. The variable CLIENT names the package: `redis` or `redis-4`.
import assert from "node:assert/strict"
import { after, before, beforeEach, describe, test } from "node:test"

const { commandOptions, createClient, WatchError } = await import(process.env.CLIENT)
const url = `redis://127.0.0.1:${process.env.PORT}`
const isFive = process.env.CLIENT === "redis"
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
// Version 4 yields keys, version 5 arrays of keys.
const collect = async (iterator) => {
  const keys = []
  for await (const part of iterator) keys.push(...[part].flat())
  return keys
}

for (const protocol of isFive ? [2, 3] : [2]) {
  describe(`RESP${protocol}`, () => {
    let client
    const open = async (options = {}) => {
      const made = createClient({ url, RESP: protocol, ...options })
      made.on("error", () => {})
      await made.connect()
      return made
    }
    const close = (one) => (isFive ? one.close() : one.quit())
    before(async () => { client = await open() })
    beforeEach(() => client.flushAll())
    after(() => close(client))
    const check = (name, body) => test(name, { timeout: 20000 }, body)

    check("PING and ECHO", async () => {
      assert.equal(await client.ping(), "PONG")
      assert.equal(await client.echo("a"), "a")
    })
    check("SET and GET", async () => {
      assert.equal(await client.set("k", "v"), "OK")
      assert.equal(await client.get("k"), "v")
      assert.equal(await client.get("absent"), null)
    })
    check("SET with NX, XX, GET and KEEPTTL", async () => {
      assert.equal(await client.set("k", "1", { NX: true }), "OK")
      assert.equal(await client.set("k", "2", { NX: true }), null)
      assert.equal(await client.set("k", "2", { XX: true, GET: true }), "1")
      await client.expire("k", 100)
      await client.set("k", "3", { KEEPTTL: true })
      assert.ok((await client.ttl("k")) > 90)
    })
    check("deadlines", async () => {
      await client.set("k", "v", { EX: 100 })
      assert.ok((await client.ttl("k")) > 90)
      assert.ok((await client.pTTL("k")) > 90_000)
      assert.equal(Number(await client.persist("k")), 1)
      assert.equal(await client.ttl("k"), -1)
      await client.set("k", "v", { PX: 20 })
      await sleep(60)
      assert.equal(await client.get("k"), null)
      assert.equal(await client.ttl("k"), -2)
    })
    check("GETEX and GETDEL", async () => {
      await client.set("k", "v")
      assert.equal(await client.getDel("k"), "v")
      assert.equal(await client.exists("k"), 0)
      await client.setEx("k", 100, "v")
      assert.equal(await client.get("k"), "v")
    })
    check("counters", async () => {
      assert.equal(await client.incr("n"), 1)
      assert.equal(await client.incrBy("n", 9), 10)
      assert.equal(await client.decrBy("n", 4), 6)
      assert.equal(Number(await client.incrByFloat("n", 0.5)), 6.5)
    })
    check("MSET, MGET and MSETNX", async () => {
      await client.mSet({ a: "1", b: "2" })
      assert.deepEqual(await client.mGet(["a", "x", "b"]), ["1", null, "2"])
      assert.equal(Number(await client.mSetNX({ a: "3", c: "4" })), 0)
    })
    check("parts of strings", async () => {
      assert.equal(await client.append("k", "hello"), 5)
      assert.equal(await client.setRange("k", 1, "a"), 5)
      assert.equal(await client.getRange("k", 0, 2), "hal")
      assert.equal(await client.strLen("k"), 5)
    })
    check("bits", async () => {
      await client.setBit("b", 7, 1)
      assert.equal(await client.getBit("b", 7), 1)
      assert.equal(await client.bitCount("b"), 1)
    })
    check("DEL, UNLINK, EXISTS, TOUCH and TYPE", async () => {
      await client.mSet({ a: "1", b: "2", c: "3" })
      assert.equal(await client.exists(["a", "b", "x"]), 2)
      assert.equal(await client.touch(["a", "x"]), 1)
      assert.equal(await client.type("a"), "string")
      assert.equal(await client.del(["a", "b"]), 2)
      assert.equal(await client.unlink("c"), 1)
    })
    check("RENAME and COPY", async () => {
      await client.set("a", "1")
      await client.rename("a", "b")
      assert.equal(Number(await client.copy("b", "c")), 1)
      assert.deepEqual(await client.mGet(["a", "b", "c"]), [null, "1", "1"])
      await assert.rejects(client.rename("x", "y"), /no such key/)
    })
    check("the iterator of SCAN", async () => {
      for (let n = 0; n < 500; n++) client.set(`s:${n}`, "v")
      await client.set("other", "v")
      assert.equal(new Set(await collect(client.scanIterator({ MATCH: "s:*", COUNT: 33 }))).size, 500)
    })
    check("KEYS and DBSIZE", async () => {
      await client.mSet({ ab: "1", ac: "2", b: "3" })
      assert.deepEqual((await client.keys("a*")).sort(), ["ab", "ac"])
      assert.equal(await client.dbSize(), 3)
    })
    check("1,000 commands in one pipeline", async () => {
      const replies = await Promise.all(Array.from({ length: 1000 }, (_, n) => client.set(`p:${n}`, `${n}`)))
      assert.ok(replies.every((reply) => reply === "OK"))
      assert.equal(await client.get("p:999"), "999")
    })
    check("MULTI and EXEC", async () => {
      const replies = await client.multi().set("k", "1").incr("k").get("k").exec()
      assert.deepEqual(replies, ["OK", 2, "2"])
    })
    check("execAsPipeline", async () => {
      assert.deepEqual(await client.multi().set("k", "1").get("k").execAsPipeline(), ["OK", "1"])
    })
    check("an error in MULTI leaves the other commands", async () => {
      await client.set("k", "text")
      const error = await client.multi().incr("k").set("a", "1").exec().catch((error) => error)
      assert.ok(error instanceof Error)
      assert.equal(await client.get("a"), "1")
    })
    check("WATCH", async () => {
      const other = await open()
      await client.set("k", "1")
      await other.watch("k")
      await client.set("k", "2")
      await assert.rejects(other.multi().set("k", "3").exec(), WatchError)
      await other.watch("k")
      assert.deepEqual(await other.multi().set("k", "4").exec(), ["OK"])
      await close(other)
    })
    check("SELECT, and a database in the options", async () => {
      const other = await open({ database: 3 })
      await other.set("k", "3")
      assert.equal(await client.get("k"), null)
      assert.equal(Number(await other.move("k", 0)), 1)
      assert.equal(await client.get("k"), "3")
      await close(other)
    })
    check("binary keys and values", async () => {
      const [key, value] = [Buffer.from([0, 13, 10, 255]), Buffer.from(Array.from({ length: 256 }, (_, n) => n))]
      await client.set(key, value)
      const inBuffers = isFive ? client.withTypeMapping({ 36: Buffer }) : client
      const options = isFive ? [] : [commandOptions({ returnBuffers: true })]
      assert.deepEqual(await inBuffers.get(...options, key), value)
    })
    check("a value of 8 MiB", async () => {
      await client.set("k", "x".repeat(8 << 20))
      assert.equal((await client.get("k")).length, 8 << 20)
    })
    check("an unknown command is an error", () => assert.rejects(client.sendCommand(["NOSUCH"]), /unknown command/))
    check("a wrong type of number is an error", async () => {
      await client.set("k", "text")
      await assert.rejects(client.incr("k"), /not an integer/)
    })
    check("the name of the connection", async () => {
      const other = await open({ name: "checks" })
      assert.equal(await other.clientGetName(), "checks")
      assert.match(await other.sendCommand(["CLIENT", "LIST"]), /name=checks/)
      await close(other)
    })
    check("a wrong password is refused", async () => {
      const other = createClient({ url, username: "nosuch", password: "x", RESP: protocol, socket: { reconnectStrategy: false } })
      other.on("error", () => {})
      await assert.rejects(other.connect(), /WRONGPASS/)
    })
    check("reconnects after CLIENT KILL", async () => {
      const other = await open({ socket: { reconnectStrategy: 10 } })
      const id = await other.clientId()
      assert.equal(await client.sendCommand(["CLIENT", "KILL", "ID", `${id}`]), 1)
      await sleep(100)
      assert.equal(await other.ping(), "PONG")
      assert.notEqual(await other.clientId(), id)
      await close(other)
    })
    check("20 connections", async () => {
      const all = await Promise.all(Array.from({ length: 20 }, () => open()))
      await Promise.all(all.flatMap((one) => Array.from({ length: 50 }, () => one.incr("n"))))
      assert.equal(await client.get("n"), "1000")
      await Promise.all(all.map(close))
    })
    check("INFO, CONFIG GET and TIME", async () => {
      assert.match(await client.info("server"), /redis_version:7/)
      assert.ok(await client.configGet("maxmemory"))
      assert.ok(await client.time())
    })
  })
}
