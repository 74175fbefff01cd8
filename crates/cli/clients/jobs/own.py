"""The part that the producers and workers in Python share: numbered jobs, and files of the numbers that were enqueued and that ran."""

import os
import pathlib
import random
import time

# The length of a line of both files: six digits and a line feed.
LINE_BYTES = 7
# The producer stays at most this number of jobs ahead of the workers, so at each kill jobs wait, and the producer is at work.
AHEAD = 60


def name(number):
    return f"job-{number:06}"


def note(file, number):
    """Appends a number to a file. Lines of several processes do not mix, because each is one short write."""
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, b"%06d\n" % number)
    finally:
        os.close(handle)


def run(folder, text):
    """The body of every job: some work, and the number of the job in the file `ran`."""
    time.sleep(random.uniform(0.001, 0.01))
    note(pathlib.Path(folder) / "ran", int(text.removeprefix("job-")))


def produce(folder, count, enqueue, errors):
    """Enqueues jobs 1 to `count` in order, each until `enqueue` has returned."""
    folder = pathlib.Path(folder)
    ran = folder / "ran"
    for number in range(1, count + 1):
        while number - os.path.getsize(ran) // LINE_BYTES > AHEAD:
            time.sleep(0.005)
        while True:
            try:
                enqueue(name(number))
                break
            except errors:
                time.sleep(0.05)
        note(folder / "acknowledged", number)
