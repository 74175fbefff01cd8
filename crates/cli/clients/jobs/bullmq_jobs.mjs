// Jobs of BullMQ. Scripts move a job from list to list. A job whose worker has not renewed its lock is stalled and is enqueued again.

import fs from "node:fs"
import { setTimeout as sleep } from "node:timers/promises"
import { Queue, Worker } from "bullmq"

const AHEAD = 60
const LINE_BYTES = 7
const [task, port, folder, number] = process.argv.slice(2)
const retryStrategy = () => 100
const note = (file, job) => fs.appendFileSync(`${folder}/${file}`, `${String(job).padStart(6, "0")}\n`)

function work() {
  const run = async ({ data }) => {
    await sleep(1 + Math.random() * 9)
    note("ran", Number(data.text.slice(4)))
  }
  const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null, retryStrategy }
  const limits = { lockDuration: 2000, stalledInterval: 1000, maxStalledCount: 1000 }
  const worker = new Worker("jobs", run, { connection, concurrency: Number(number), removeOnComplete: { count: 0 }, ...limits })
  worker.on("error", (error) => console.error(error.message))
  process.on("SIGTERM", () => process.exit(0))
}

async function produce() {
  const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: 1, retryStrategy }
  const queue = new Queue("jobs", { connection, defaultJobOptions: { attempts: 1000, backoff: 100 } })
  queue.on("error", (error) => console.error(error.message))
  for (let job = 1; job <= Number(number); job++) {
    while (job - fs.statSync(`${folder}/ran`).size / LINE_BYTES > AHEAD) await sleep(5)
    const text = `job-${String(job).padStart(6, "0")}`
    for (let done = false; !done; ) {
      try {
        await queue.add("run", { text }, { jobId: text })
        done = true
      } catch (error) {
        console.error(error.message)
        await sleep(50)
      }
    }
    note("acknowledged", job)
  }
  process.exit(0)
}

await (task === "work" ? work() : produce())
