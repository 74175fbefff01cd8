"""Runs the core workloads of YCSB against `bristlecone serve` and `redis-server`, and prints one JSON object.

    python3 crates/cli/clients/ycsb.py [--target DIR] [--server PROGRAM] [--rounds N] [--seconds N] [WORKLOAD ...]

The database of YCSB is `java/YcsbStore.java`: a hash for each record, and a sorted set with all keys. Each server loads the records once.
Then the servers take turns with each workload, so the figures of a ratio come from the same minutes. A figure is the median of the rounds.

YCSB knows the value of each field and verifies what it reads (`dataintegrity`). A run fails if an operation fails, if a value is wrong, or
if nothing was verified in a workload that reads records.
"""

import argparse
import json
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True

import suites  # noqa: E402
from run import ROOT, Packages, say  # noqa: E402

RECORDS = 20_000
THREADS = 16
FIELDS, FIELD_BYTES = 10, 100

# The core workloads of YCSB: shares of operations, and the choice of records.
WORKLOADS = {
    "A": {"readproportion": 0.5, "updateproportion": 0.5, "requestdistribution": "zipfian"},
    "B": {"readproportion": 0.95, "updateproportion": 0.05, "requestdistribution": "zipfian"},
    "C": {"readproportion": 1, "updateproportion": 0, "requestdistribution": "zipfian"},
    "D": {"readproportion": 0.95, "updateproportion": 0, "insertproportion": 0.05, "requestdistribution": "latest"},
    "E": {"readproportion": 0, "updateproportion": 0, "scanproportion": 0.95, "insertproportion": 0.05, "maxscanlength": 100},
    "F": {"readproportion": 0.5, "updateproportion": 0, "readmodifywriteproportion": 0.5, "requestdistribution": "zipfian"},
}

# The servers: name, program, whether the files are on a disk, options.
SERVERS = [
    ("process", "bristlecone", False, ["--durability", "process"]),
    ("redis_none", "redis-server", False, ["--save", "", "--appendonly", "no"]),
    ("power", "bristlecone", True, ["--durability", "power"]),
    ("redis_always", "redis-server", True, ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]),
]


class Server:
    """A running server with the records."""

    def __init__(self, name, program, folder, options):
        self.name, self.folder, self.records = name, folder, RECORDS
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        if pathlib.Path(program).name == "redis-server":
            words = [program, "--port", self.port, "--dir", folder, *options]
        else:
            words = [program, "serve", "--listen", f"127.0.0.1:{self.port}", "--dir", folder, *options]
        silent = subprocess.DEVNULL
        self.process = subprocess.Popen(list(map(str, words)), stdin=silent, stdout=silent, stderr=silent)
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"the server {name} does not start") from None
                time.sleep(0.02)

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def figures(output):
    """The numbers that YCSB prints: lines `[PART], NAME, NUMBER`."""
    lines = re.findall(r"^\[(\S+)\], (\S+), ([0-9.]+)", output, re.MULTILINE)
    return {(part, name): float(number) for part, name, number in lines}


def judge(numbers, reads):
    """The problems of a run."""
    problems = [f"{part}: {number:.0f} {name}" for (part, name), number in numbers.items() if is_failure(name)]
    if not numbers.get(("OVERALL", "Throughput(ops/sec)")):
        problems.append("no operation ran")
    if reads and not numbers.get(("VERIFY", "Return=OK")):
        problems.append("nothing was verified")
    return problems


def is_failure(name):
    return name.startswith("Return=") and name != "Return=OK"


def ycsb(server, classes, phase, workload, seconds=None):
    """Runs a phase of YCSB (`-load` or `-t`). Returns its numbers. The next run inserts records behind those of this one."""
    properties = {
        "workload": "site.ycsb.workloads.CoreWorkload",
        "redis.port": server.port,
        "recordcount": server.records,
        "fieldcount": FIELDS,
        "fieldlength": FIELD_BYTES,
        "fieldlengthdistribution": "constant",
        "dataintegrity": "true",
        "measurementtype": "hdrhistogram",
        **workload,
    }
    if seconds:
        # The time ends the run, not the number of operations.
        properties |= {"operationcount": 2_000_000_000, "maxexecutiontime": seconds}
    words = ["java", "-cp", classes, "site.ycsb.Client", "-db", "YcsbStore", phase, "-threads", THREADS]
    for name, value in properties.items():
        words += ["-p", f"{name}={value}"]
    output = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
    numbers = figures(output.stdout)
    problems = judge(numbers, phase == "-t" and float(workload.get("readproportion", 0)) > 0)
    if output.returncode or problems:
        raise SystemExit(f"YCSB with {server.name}, {workload}: code {output.returncode}, {problems}\n{output.stderr[-2000:]}")
    if phase == "-t":
        server.records += int(numbers.get(("INSERT", "Return=OK"), 0))
    return numbers


def cells(rounds):
    """The medians of the rounds: operations per second, and the 99th percentile of each kind of operation in milliseconds."""
    kinds = sorted({part for numbers in rounds for part, name in numbers if name == "99thPercentileLatency(us)"})
    kinds = [kind for kind in kinds if kind in ("READ", "UPDATE", "INSERT", "SCAN", "READ-MODIFY-WRITE")]
    rate = statistics.median(numbers["OVERALL", "Throughput(ops/sec)"] for numbers in rounds)
    p99 = {kind: statistics.median(numbers[kind, "99thPercentileLatency(us)"] for numbers in rounds) / 1000 for kind in kinds}
    return {"per_second": round(rate), "p99_ms": p99}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target")
    parser.add_argument("--server", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("workloads", nargs="*")
    options = parser.parse_args()
    target = options.target.resolve()
    classes = suites.compiled(Packages(target))
    servers, rows = [], [{"workload": "load"}]
    try:
        for name, program, is_on_disk, words in SERVERS:
            base = target / "clients" if is_on_disk else pathlib.Path("/dev/shm")
            program = options.server or target / "release/bristlecone" if program == "bristlecone" else program
            servers.append(Server(name, program, base / f"bristlecone-ycsb-{name}", words))
            rows[0][name] = cells([ycsb(servers[-1], classes, "-load", {})])
            say(f"== load of {name}: {rows[0][name]}")
        for workload in options.workloads or WORKLOADS:
            rounds = {server.name: [] for server in servers}
            for _ in range(options.rounds):
                for server in servers:
                    rounds[server.name].append(ycsb(server, classes, "-t", WORKLOADS[workload], options.seconds))
            rows.append({"workload": workload} | {name: cells(numbers) for name, numbers in rounds.items()})
            say(f"== {rows[-1]}")
    finally:
        for server in servers:
            server.stop()
    settings = {"records": RECORDS, "threads": THREADS, "fields": FIELDS, "field_bytes": FIELD_BYTES}
    print(json.dumps(settings | {"rounds": options.rounds, "seconds": options.seconds, "rows": rows}, indent=2))
    return 0


if __name__ == "__main__":
    # An end by SIGTERM stops the servers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
