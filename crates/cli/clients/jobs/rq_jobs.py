"""Jobs of rq. A job goes from its queue to the intermediate queue, and from there to the jobs that have started. Workers look for jobs that
stay in one of both, and enqueue them again.

rq waits a minute and more before it takes such a job as stuck. Here it waits two seconds, so that a round is short.
"""

import datetime
import sys

import redis
import redis.backoff
import redis.retry
import rq
import rq.intermediate_queue

import own

STUCK_SECONDS = 2


class IntermediateQueue(rq.intermediate_queue.IntermediateQueue):
    def should_be_cleaned_up(self, job_id):
        seen = self.get_first_seen(job_id)
        limit = datetime.timedelta(seconds=STUCK_SECONDS)
        return seen is not None and datetime.datetime.now(datetime.timezone.utc) - seen > limit


rq.queue.IntermediateQueue = IntermediateQueue


class Worker(rq.SimpleWorker):
    def get_heartbeat_ttl(self, job, working_time=0.0):
        return STUCK_SECONDS


def queue(port):
    retry = redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 3)
    return rq.Queue("jobs", connection=redis.Redis(port=port, retry=retry))


def main(task, port, folder, number):
    jobs = queue(int(port))
    if task == "work":
        # A worker with this limit waits one second for a job, and then looks for stuck jobs.
        Worker([jobs], connection=jobs.connection, worker_ttl=16, maintenance_interval=1).work(logging_level="WARNING")
        return
    options = {"retry": rq.Retry(max=1000), "job_timeout": 60, "result_ttl": 0}
    errors = (redis.ConnectionError, redis.TimeoutError)
    own.produce(folder, int(number), lambda text: jobs.enqueue("own.run", folder, text, job_id=text, **options), errors)


if __name__ == "__main__":
    main(*sys.argv[1:])
