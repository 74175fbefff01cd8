// Our own checks of ioredis.
import assert from "node:assert/strict"
import { after, before, beforeEach, test } from "node:test"
import Redis from "ioredis"

const port = Number(process.env.PORT)
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
const open = (options = {}) => new Redis({ port, ...options })
let client
before(() => { client = open() })
beforeEach(() => client.flushall())
after(() => client.quit())
const check = (name, body) => test(name, { timeout: 20000 }, body)

check("PING", async () => assert.equal(await client.ping(), "PONG"))
check("SET and GET", async () => {
  assert.equal(await client.set("k", "v"), "OK")
  assert.equal(await client.get("k"), "v")
  assert.equal(await client.get("absent"), null)
})
check("SET with options", async () => {
  assert.equal(await client.set("k", "1", "EX", 100, "NX"), "OK")
  assert.equal(await client.set("k", "2", "NX"), null)
  assert.ok((await client.ttl("k")) > 90)
})
check("deadlines", async () => {
  await client.set("k", "v", "PX", 20)
  await sleep(60)
  assert.equal(await client.get("k"), null)
  await client.psetex("k", 50_000, "v")
  assert.ok((await client.pttl("k")) > 40_000)
  assert.equal(await client.persist("k"), 1)
})
check("GETEX and GETDEL", async () => {
  await client.set("k", "v")
  assert.equal(await client.getex("k", "EX", 100), "v")
  assert.ok((await client.ttl("k")) > 90)
  assert.equal(await client.getdel("k"), "v")
})
check("counters", async () => {
  assert.equal(await client.incrby("n", 5), 5)
  assert.equal(await client.decr("n"), 4)
  assert.equal(await client.incrbyfloat("n", 0.25), "4.25")
})
check("MSET with an object and a Map, MGET", async () => {
  await client.mset({ a: 1, b: 2 })
  await client.mset(new Map([["c", 3]]))
  assert.deepEqual(await client.mget("a", "b", "c", "x"), ["1", "2", "3", null])
})
check("binary keys and values", async () => {
  const value = Buffer.from(Array.from({ length: 256 }, (_, n) => n))
  await client.set(Buffer.from([0, 255]), value)
  assert.deepEqual(await client.getBuffer(Buffer.from([0, 255])), value)
})
check("a pipeline", async () => {
  assert.deepEqual(await client.pipeline().set("k", "1").incr("k").get("k").exec(), [[null, "OK"], [null, 2], [null, "2"]])
})
check("a pipeline of 1,000 commands", async () => {
  const pipeline = client.pipeline()
  for (let n = 0; n < 1000; n++) pipeline.set(`p:${n}`, n)
  assert.ok((await pipeline.exec()).every(([error, reply]) => !error && reply === "OK"))
})
check("an error in a pipeline leaves the other commands", async () => {
  const [[error], [none, reply]] = await client.pipeline([["incr", "k", "x"], ["set", "a", "1"]]).exec()
  assert.match(error.message, /wrong number of arguments/)
  assert.deepEqual([none, reply], [null, "OK"])
})
check("automatic pipelining", async () => {
  const other = open({ enableAutoPipelining: true })
  await Promise.all(Array.from({ length: 200 }, (_, n) => other.set(`a:${n}`, n)))
  assert.equal(await other.get("a:199"), "199")
  await other.quit()
})
check("MULTI and EXEC in a pipeline", async () => {
  assert.deepEqual(await client.multi().set("k", "1").get("k").exec(), [[null, "OK"], [null, "1"]])
})
check("MULTI and EXEC one by one", async () => {
  assert.equal(await client.multi({ pipeline: false }), "OK")
  assert.equal(await client.set("k", "1"), "QUEUED")
  assert.deepEqual(await client.exec(), [[null, "OK"]])
})
check("DISCARD", async () => {
  await client.multi({ pipeline: false })
  await client.set("k", "1")
  assert.equal(await client.discard(), "OK")
  assert.equal(await client.get("k"), null)
})
check("WATCH", async () => {
  const other = open()
  await other.watch("k")
  await client.set("k", "1")
  assert.equal(await other.multi().set("k", "2").exec(), null)
  await other.quit()
})
check("scanStream", async () => {
  for (let n = 0; n < 500; n++) client.set(`s:${n}`, n)
  await client.set("other", "v")
  const keys = new Set()
  for await (const part of client.scanStream({ match: "s:*", count: 33 })) part.forEach((key) => keys.add(key))
  assert.equal(keys.size, 500)
})
check("SCAN with a type", async () => {
  await client.mset({ a: 1, b: 2 })
  const [cursor, keys] = await client.scan(0, "TYPE", "string", "COUNT", 100)
  assert.deepEqual([cursor, keys.sort()], ["0", ["a", "b"]])
})
check("a prefix of keys", async () => {
  const other = open({ keyPrefix: "p:" })
  await other.set("k", "v")
  assert.equal(await client.get("p:k"), "v")
  assert.equal(await other.del("k"), 1)
  await other.quit()
})
check("a database in the options", async () => {
  const other = open({ db: 5 })
  await other.set("k", "v")
  assert.equal(await client.get("k"), null)
  assert.equal(await other.dbsize(), 1)
  await other.quit()
})
check("RENAME, COPY and UNLINK", async () => {
  await client.set("a", "1")
  await client.rename("a", "b")
  assert.equal(await client.copy("b", "c"), 1)
  assert.equal(await client.unlink("b", "c", "x"), 2)
})
check("bits and ranges", async () => {
  await client.setbit("b", 9, 1)
  assert.equal(await client.bitcount("b"), 1)
  assert.equal(await client.bitpos("b", 1), 9)
  await client.setrange("s", 0, "hello")
  assert.equal(await client.getrange("s", -3, -1), "llo")
})
check("an unknown command is an error", () => assert.rejects(client.call("NOSUCH"), /unknown command/))
check("errors name the command", async () => {
  await client.set("k", "text")
  const error = await client.incr("k").catch((error) => error)
  assert.match(error.message, /not an integer/)
  assert.equal(error.command.name, "incr")
})
check("the ready check with INFO", async () => {
  const other = open({ lazyConnect: true, enableReadyCheck: true })
  await other.connect()
  assert.equal(other.status, "ready")
  await other.quit()
})
check("the name of the connection", async () => {
  const other = open({ connectionName: "checks" })
  assert.equal(await other.client("GETNAME"), "checks")
  await other.quit()
})
check("a wrong password is refused", async () => {
  const other = open({ username: "nosuch", password: "x", retryStrategy: null, lazyConnect: true })
  other.on("error", () => {})
  await assert.rejects(other.ping(), /WRONGPASS|Connection is closed/)
  other.disconnect()
})
check("reconnects after CLIENT KILL, to its database", async () => {
  const other = open({ db: 2, retryStrategy: () => 10 })
  await other.set("k", "2")
  const id = await other.client("ID")
  assert.equal(await client.client("KILL", "ID", id), 1)
  await sleep(100)
  assert.equal(await other.get("k"), "2")
  assert.notEqual(await other.client("ID"), id)
  await other.quit()
})
check("the offline queue", async () => {
  const other = open()
  assert.deepEqual(await Promise.all([other.set("k", "1"), other.get("k")]), ["OK", "1"])
  await other.quit()
})
check("duplicate", async () => {
  const other = client.duplicate()
  assert.equal(await other.ping(), "PONG")
  await other.quit()
})
check("MONITOR", async () => {
  const monitor = await client.monitor()
  const line = new Promise((resolve) => monitor.on("monitor", (time, args) => args[0].toLowerCase() === "get" && resolve(args)))
  await client.get("seen")
  assert.deepEqual((await line).map((word) => word.toLowerCase()), ["get", "seen"])
  monitor.disconnect()
})
check("20 connections", async () => {
  const all = Array.from({ length: 20 }, () => open())
  await Promise.all(all.flatMap((one) => Array.from({ length: 50 }, () => one.incr("n"))))
  assert.equal(await client.get("n"), "1000")
  await Promise.all(all.map((one) => one.quit()))
})
check("a value of 8 MiB", async () => {
  await client.set("k", "x".repeat(8 << 20))
  assert.equal((await client.get("k")).length, 8 << 20)
})
