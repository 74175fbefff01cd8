"""Jobs of Celery, acknowledged when they have run. A worker removes a job from its queue (`BRPOP`) and stores it with a second command as
not acknowledged. A job that stays so for the visibility timeout is enqueued again. The worker that does this holds a lock: a key that lasts five
minutes by default. A kill of the server may leave the key.
"""

import sys

import celery
import kombu.exceptions
import redis

import own

app = celery.Celery("jobs")


@app.task(name="run", acks_late=True, reject_on_worker_lost=True, ignore_result=True)
def run(folder, text):
    own.run(folder, text)


def main(task, port, folder, number):
    app.conf.update(
        broker_url=f"redis://127.0.0.1:{port}/0",
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": 3,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "unacked_mutex_expire": 2,
        },
        worker_prefetch_multiplier=1,
        task_publish_retry=False,
    )
    if task == "work":
        app.worker_main(["worker", f"--concurrency={number}", "--loglevel=WARNING", "--without-gossip", "--without-mingle"])
        return
    errors = (kombu.exceptions.OperationalError, redis.ConnectionError, redis.TimeoutError, ConnectionError)
    own.produce(folder, int(number), lambda text: run.delay(folder, text), errors)


if __name__ == "__main__":
    main(*sys.argv[1:])
