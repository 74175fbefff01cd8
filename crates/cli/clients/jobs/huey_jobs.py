"""Jobs of huey. A worker removes a job from its queue with one command (`BRPOP`)."""

import sys

import huey
import huey.consumer
import redis
import redis.backoff
import redis.retry

import own


def main(task, port, folder, number):
    retry = redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 3)
    jobs = huey.RedisHuey("jobs", port=int(port), retry=retry, results=False)
    run = jobs.task(name="run")(own.run)
    if task == "work":
        # `backoff` 1: the time between two attempts does not grow while the server is away.
        jobs.create_consumer(workers=int(number), worker_type="thread", periodic=False, backoff=1.0).run()
        return
    errors = (redis.ConnectionError, redis.TimeoutError)
    own.produce(folder, int(number), lambda text: run(folder, text), errors)


if __name__ == "__main__":
    main(*sys.argv[1:])
