"""Kills the server (`kill -9`) while workers of job systems run jobs, and prints one JSON object: no job may be lost.

    python3 crates/cli/clients/jobs/jobs.py [--rounds N] [--seed N] [--target DIR] [--server PROGRAM] [--python PROGRAM] [SYSTEM ...]

A round starts a server with an empty store, workers, and a producer of numbered jobs. In odd rounds the store is on a disk with power
durability, else in memory with process durability. The producer writes the number of a job to the file `acknowledged` when its call has
returned; a job writes its number to the file `ran`. The server is killed several times, at random moments. Each time it first starts on
another port, where the judge reads which jobs it holds. Then it is killed again and starts on its port, and workers and producer connect
again. The round ends when all jobs have run, or when no further job runs.

The judge requires:

* J1: after each kill, an acknowledged job has run or the server holds it. Three systems remove a job from its queue before the worker has
  it safely (`hands` is not 0). There at most `hands` jobs for each kill may be elsewhere: they were on the way to a worker, or in it. If
  the queue is strict (`is_strict`), they must be older than all jobs in it, because workers take the oldest one.
* J2: at the end, every acknowledged job has run at least once, except jobs that J1 found elsewhere.

A last round of each system runs with `redis-server` without persistence, which loses the jobs. The run fails if J1 does not notice it. With
`--server redis-server` or `--compare`, `redis-server` runs with `appendfsync always`, and is judged in the same way.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent))

from run import ROOT, Packages, say  # noqa: E402

JOBS = 400
KILLS = 3
THREADS = 4
# A round in which no job runs for this time has ended. Job systems enqueue a stuck job within some seconds.
PATIENCE_SECONDS = 20
# Workers that can hang are killed if no job runs for this time.
HANG_SECONDS = 10
# The same, if only jobs are left that are perhaps lost.
SHORT_PATIENCE_SECONDS = 5
# Clients take their own ports from 32768 on. A client that tries to connect to such a port can connect to itself.
PORTS = range(20_000, 32_000)
REDIS = "redis-server"
COUNTS = ("rounds", "kills", "acknowledged", "lost", "twice", "hung")
NAME = re.compile(rb"job-(\d{6})")


@dataclasses.dataclass
class System:
    name: str
    script: str
    # Processes with workers, and the number of workers in each.
    processes: int
    threads: int
    # Jobs that may be on the way to a worker or in it, with no trace in the server.
    hands: int
    # True if a job never returns to the queue.
    is_strict: bool
    # True if its workers sometimes hang because of an error of their own. Then they are killed and start again.
    can_hang: bool = False


SYSTEMS = [
    System("rq", "rq_jobs.py", THREADS, 1, 0, False),
    System("huey", "huey_jobs.py", 1, THREADS, THREADS, True),
    System("celery", "celery_jobs.py", 1, THREADS, 1, False, can_hang=True),
    System("bullmq", "bullmq_jobs.mjs", 1, THREADS, 0, False),
    System("sidekiq", "sidekiq_jobs.rb", 1, THREADS, THREADS, True),
]


# The judgement


def elsewhere(system, acknowledged, ran, held, queued, before):
    """J1: the acknowledged jobs that have not run and that the server does not hold. Returns them and the problems. `queued` are jobs in
    lists, `before` jobs that were gone after an earlier kill."""
    missing = acknowledged - ran - held - before
    problems = []
    if len(missing) > system.hands:
        problems.append(f"{len(missing)} acknowledged jobs are gone, {system.hands} may be: {sorted(missing)[:20]}")
    if system.is_strict and missing and queued and max(missing) > min(queued):
        problems.append(f"job {max(missing)} is gone, but the older job {min(queued)} waits")
    return missing, problems


def lost(acknowledged, ran, allowed, held):
    """J2: the acknowledged jobs that never ran. Returns them and the problems. `held` are jobs that the server holds at the end."""
    missing = acknowledged - ran
    wrong = sorted(missing - allowed)
    waiting = [number for number in wrong if number in held]
    return missing, [f"{len(wrong)} acknowledged jobs never ran: {wrong[:20]}; the server holds {waiting[:20]}"] if wrong else []


# The server


def ask(stream, *words):
    """Sends a command. Returns its reply; a reply of several values is a list."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    stream.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
    stream.flush()
    return reply(stream)


def reply(stream):
    line = stream.readline().rstrip(b"\r\n")
    kind, rest = line[:1], line[1:]
    if kind == b"*":
        return [reply(stream) for _ in range(int(rest))]
    if kind == b"$":
        return stream.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
    if kind == b"-" or not kind:
        raise RuntimeError(f"the server says {line}")
    return rest


READ = {b"list": ("LRANGE", 0, -1), b"hash": ("HGETALL",), b"zset": ("ZRANGE", 0, -1), b"set": ("SMEMBERS",), b"string": ("GET",)}


def held_jobs(port):
    """The numbers of all jobs that are named in the server, and those that are named in lists. A stream has only events of jobs."""
    found, queued = set(), set()

    def numbers(value):
        return {int(number) for part in (value if isinstance(value, list) else [value]) for number in NAME.findall(part or b"")}

    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        stream = connection.makefile("rwb")
        for key in ask(stream, "KEYS", "*"):
            found |= numbers(key)
            kind = ask(stream, "TYPE", key)
            if kind in READ:
                command, *arguments = READ[kind]
                inside = numbers(ask(stream, command, key, *arguments))
                found |= inside
                queued |= inside if kind == b"list" else set()
    return found, queued


class Server:
    """A server that is killed and starts again with the same store."""

    def __init__(self, program, folder, durability, log):
        self.program, self.folder, self.durability, self.log = program, folder, durability, log
        self.is_redis = pathlib.Path(program).name == "redis-server"
        self.process = None
        folder.mkdir(parents=True)

    def start(self, port):
        if self.is_redis:
            words = [self.program, "--port", port, "--dir", self.folder, "--save", "", "--appendfsync", "always"]
            words += ["--appendonly", "no" if self.durability == "none" else "yes"]
        else:
            words = [self.program, "serve", "--dir", self.folder, "--listen", f"127.0.0.1:{port}", "--durability", self.durability]
        self.process = subprocess.Popen(list(map(str, words)), stdout=self.log, stderr=self.log)
        end = time.monotonic() + 30
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                    # Redis refuses commands while it loads its data.
                    ask(connection.makefile("rwb"), "PING")
                return
            except (OSError, RuntimeError):
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("the server does not start") from None
                time.sleep(0.01)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def free_port(choices):
    while True:
        port = choices.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


# A round


class Round:
    def __init__(self, system, words, server, folder, choices):
        self.system, self.words, self.server, self.folder, self.choices = system, words, server, folder, choices
        self.port = free_port(choices)
        self.workers, self.producer, self.hung = [], None, 0
        self.log = open(folder / "log", "wb")
        for name in ("acknowledged", "ran"):
            (folder / name).touch()

    def process(self, task, number):
        words = [*self.words, task, self.port, self.folder, number]
        settings = {"cwd": self.folder, "stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": self.log}
        return subprocess.Popen(list(map(str, words)), start_new_session=True, **settings)

    def numbers(self, name):
        return [int(line) for line in (self.folder / name).read_text().splitlines()]

    def keep_workers(self):
        """Starts workers that have ended again, as a supervisor of services does."""
        for at, worker in enumerate(self.workers):
            if worker.poll() is not None:
                self.workers[at] = self.process("work", self.system.threads)

    def wait(self, is_done, patience=PATIENCE_SECONDS):
        """Waits until `is_done`. False if no job ran for a long time, or if the producer failed."""
        count, since = -1, time.monotonic()
        while not is_done():
            self.keep_workers()
            now = (self.folder / "ran").stat().st_size
            if now != count:
                count, since, is_first = now, time.monotonic(), True
            quiet = time.monotonic() - since
            if quiet > patience or self.producer.poll():
                return False
            if quiet > HANG_SECONDS and self.system.can_hang and is_first:
                self.hung += 1
                end_groups(self.workers, seconds=0)
                is_first = False
            time.sleep(0.01)
        return True

    def kill_and_look(self, allowed):
        self.server.kill()
        acknowledged = set(self.numbers("acknowledged"))
        aside = free_port(self.choices)
        self.server.start(aside)
        held, queued = held_jobs(aside)
        self.server.kill()
        missing, problems = elsewhere(self.system, acknowledged, set(self.numbers("ran")), held, queued, allowed)
        allowed |= missing
        self.server.start(self.port)
        return problems

    def has_run_all(self, but):
        """True if the producer has ended and all its jobs have run, `but` these."""
        ended = self.producer.poll() is not None
        return ended and set(self.numbers("acknowledged")) <= set(self.numbers("ran")) | but

    def run(self):
        """Returns the figures of the round and the problems."""
        allowed, problems, kills, held = set(), [], 0, set()
        try:
            self.server.start(self.port)
            self.workers = [self.process("work", self.system.threads) for _ in range(self.system.processes)]
            self.producer = self.process("produce", JOBS)
            for kill in range(1, KILLS + 1):
                enough = JOBS * kill // (KILLS + 1)
                if not self.wait(lambda: len(self.numbers("ran")) >= enough):
                    problems.append(f"no further job runs before kill {kill}")
                    break
                time.sleep(self.choices.uniform(0, 0.05))
                problems += self.kill_and_look(allowed)
                kills += 1
                if problems:
                    break
            if not problems:
                self.wait(lambda: self.has_run_all(allowed))
                # The others are perhaps lost, or a worker has them.
                self.wait(lambda: self.has_run_all(set()), SHORT_PATIENCE_SECONDS)
                if self.producer.poll() != 0:
                    problems.append(f"the producer ended with code {self.producer.poll()}")
                held, _ = held_jobs(self.port)
        finally:
            self.end()
        ran = self.numbers("ran")
        acknowledged = set(self.numbers("acknowledged"))
        missing, wrong = lost(acknowledged, set(ran), allowed, held)
        problems += wrong
        twice = sum(count > 1 for count in collections.Counter(ran).values())
        figures = {"kills": kills, "acknowledged": len(acknowledged), "lost": len(missing), "twice": twice, "hung": self.hung}
        return figures, problems

    def end(self):
        """Ends all processes. Each one began a session, so its group has its children and no other process."""
        end_groups([*self.workers, self.producer], seconds=5)
        self.server.kill()
        self.log.close()


def end_groups(processes, seconds):
    """Ends processes and their children: with SIGTERM, and with SIGKILL after some seconds."""
    children = [child for child in processes if child and child.returncode is None]
    for child in children:
        os.kill(child.pid, signal.SIGTERM)
    end = time.monotonic() + seconds
    for child in children:
        # No call has waited for the child yet, so the number of its group is still its own.
        while not has_ended(child) and time.monotonic() < end:
            time.sleep(0.01)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def has_ended(child):
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


# The systems


def prepare(system, options):
    """Installs a job system. Returns its version and the beginning of the command line of its script."""
    import suites

    packages = Packages(options.target)
    script = HERE / system.script
    if script.suffix == ".py":
        python = options.python or suites.python(packages)
        return output([python, "-c", f"import importlib.metadata as m; print(m.version('{system.name}'))"]), [python, "-B", script]
    if script.suffix == ".mjs":
        folder = suites.node(packages)
        shutil.copy(script, folder)
        return suites.NPM[system.name], ["node", folder / script.name]
    if not shutil.which("sidekiq"):
        raise SystemExit("Sidekiq is missing: as root: apt-get install -y --no-install-recommends ruby-sidekiq")
    return output(["sidekiq", "--version"]).removeprefix("Sidekiq "), ["ruby", script]


def output(words):
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout.strip()


def folders(options, system, number, is_on_disk):
    """A new folder for files, and one for the store."""
    memory = pathlib.Path("/dev/shm")
    folder = options.target / "clients" / "jobs" / f"{system.name}-{os.getpid()}-{number}"
    store = folder / "store" if is_on_disk or not memory.is_dir() else memory / f"bristlecone-jobs-{os.getpid()}"
    for old in (folder, store):
        shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder, store


def play(system, words, program, number, options, durability=None):
    """A round. Returns its figures and the problems. The folder of a round with a problem stays, unless the problem is expected."""
    is_on_disk = number % 2 == 1
    folder, store = folders(options, system, number, is_on_disk)
    choices = random.Random(f"{options.seed} {system.name} {number}")
    with open(folder / "server.log", "wb") as log:
        server = Server(program, store, durability or ("power" if is_on_disk else "process"), log)
        figures, problems = Round(system, words, server, folder, choices).run()
    shutil.rmtree(store, ignore_errors=True)
    if not problems or durability == "none":
        shutil.rmtree(folder, ignore_errors=True)
    return figures, [f"{system.name}, round {number}, seed {options.seed}, {folder}: {problem}" for problem in problems]


def rounds(system, words, program, options):
    """Plays all rounds with one program. Returns the sums of their figures and the problems."""
    sums, problems, start = collections.Counter(), [], time.monotonic()
    for number in range(options.rounds):
        figures, wrong = play(system, words, program, number, options)
        say(f"   {system.name}, {pathlib.Path(program).name}, round {number}: {figures} after {time.monotonic() - start:.0f} s")
        sums.update(figures | {"rounds": 1})
        problems += wrong
    return sums, problems


def campaign(system, version, words, options):
    """All rounds of a system. Returns its row and the problems."""
    sums, problems = rounds(system, words, options.server, options)
    row = {"system": system.name, "version": version, "may_be_lost": sums["kills"] * system.hands}
    row |= {name: sums[name] for name in COUNTS}
    if system.hands and options.compare:
        redis, wrong = rounds(system, words, REDIS, options)
        row["lost_by_redis"] = redis["lost"]
        problems += wrong
    _, found = play(system, words, REDIS, 0, options, durability="none")
    say(f"   {system.name}, {REDIS} without persistence: {found}")
    if not any("acknowledged jobs are gone" in problem for problem in found):
        problems.append(f"{system.name}: the judge does not notice the jobs that {REDIS} without persistence loses")
    return row, problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target")
    parser.add_argument("--server")
    parser.add_argument("--python", help="an interpreter with the packages of the job systems")
    parser.add_argument("--compare", action="store_true", help="the same rounds with Redis, for systems that can lose jobs")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("systems", nargs="*")
    options = parser.parse_args()
    options.target = options.target.resolve()
    options.server = options.server or options.target / "release/bristlecone"
    rows, problems = [], []
    systems = [system for system in SYSTEMS if not options.systems or system.name in options.systems]
    # All of them before the first round, so that a missing package is told at once and not after minutes.
    prepared = [prepare(system, options) for system in systems]
    for system, (version, words) in zip(systems, prepared):
        say(f"== {system.name}")
        row, wrong = campaign(system, version, words, options)
        rows.append(row)
        problems += wrong
        say("".join(f"   {line}\n" for line in wrong) + f"   {row}")
    sums = {name: sum(row[name] for row in rows) for name in COUNTS}
    print(json.dumps(sums | {"rows": rows, "problems": problems}, indent=2))
    return 1 if problems or not rows else 0


if __name__ == "__main__":
    # An end by SIGTERM stops the server, the workers and the producer, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
