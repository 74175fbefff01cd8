"""Runs the test suites of clients and frameworks of Redis and memcached against `bristlecone serve`, and prints one JSON object.

    python3 crates/cli/clients/run.py [--target DIR] [--server PROGRAM] [SUITE ...]

Each suite gets a new server on a free port. A test counts as
* passed, skipped (by the suite itself), or failed;
* not claimed, if it fails with the error `unknown command` for a command that docs/redis-commands.md lists as missing, or if
  `known.toml` lists it as not claimed.

The run fails if a test fails that `known.toml` does not list, if a listed test passes or does not exist, or if a server does not end
properly. With `--server redis-server` (or `memcached`) the run shows which tests fail against Redis (or memcached), too. Everything that a
suite installs is below the folder `clients` of the target folder.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree

# Python writes no cache beside the sources, neither here nor in the suites.
sys.dont_write_bytecode = True
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# The tables of a suite in `known.toml`.
KINDS = ("failed", "not-claimed")
UNKNOWN = re.compile(r"unknown command\W{1,3}([A-Za-z]+)", re.IGNORECASE)


def say(text):
    print(text, file=sys.stderr, flush=True)


def command(words, seconds, folder=None, env=None, log=None):
    """Runs a command with a time limit. Returns its exit code. Its output goes to the file `log`."""
    output = open(log, "wb") if log else sys.stderr
    words = ["nice", "-n", "19", *map(str, words)]
    settings = {"cwd": folder, "env": os.environ | (env or {}), "start_new_session": True}
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **settings)
    try:
        return child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        say(f"   no end after {seconds} s: {' '.join(words)}")
        return 124
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if log:
            output.close()


def install(words, seconds=900, folder=None, env=None):
    """Runs a command that downloads. A second attempt follows a failure, because registries sometimes fail."""
    if command(words, seconds, folder, env) and command(words, seconds, folder, env):
        raise SystemExit(f"cannot install: {' '.join(map(str, words))}")


class Server:
    """A running server with an empty store. With `memcached`, its port is that of memcached clients."""

    def __init__(self, program, folder, memcached=False):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "backups").mkdir(parents=True)
        self.log = open(folder / "log", "wb")
        other = pathlib.Path(program).name
        if other in ("redis-server", "memcached"):
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            words = [program, "--port", self.port, "--dir", folder / "store", "--save", "", "--unixsocket", folder / "socket"]
            if other == "memcached":
                words = [program, "-u", "root", "-l", "127.0.0.1", "-p", self.port]
            (folder / "store").mkdir()
            self.process = subprocess.Popen(list(map(str, words)), stdout=self.log, stderr=self.log)
            time.sleep(1)
            return
        words = [program, "serve", "--dir", folder / "store", "--listen", "127.0.0.1:0", "--json"]
        words += ["--durability", "process", "--backup-dir", folder / "backups", "--unix-socket", folder / "socket"]
        words += ["--memcached", "127.0.0.1:0"] if memcached else []
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self.log)
        listens = json.loads(self.process.stdout.readline())
        self.port = int(listens["memcached" if memcached else "listen"].rsplit(":", 1)[1])

    def stop(self):
        """Ends the server. Returns a problem, or None."""
        code = self.process.poll()
        if code is not None:
            return f"the server ended during the tests, code {code}"
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "the server did not end within 60 s after SIGTERM"
        self.log.close()
        shutil.rmtree(self.folder / "store", ignore_errors=True)
        return f"the server ended with code {code}" if code else None


class Packages:
    """The folder of everything that is installed."""

    def __init__(self, target):
        self.clients = target / "clients"

    def stamped(self, name, content, make):
        """Calls `make` with the folder `name` if it was not made from this content before."""
        folder = self.clients / name
        stamp = folder / ".made-from"
        if not stamp.exists() or stamp.read_text() != content:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            make(folder)
            stamp.write_text(content)
        return folder


class Place(Packages):
    """The folders and the server that a suite uses."""

    def __init__(self, target, name, server):
        super().__init__(target)
        self.folder = self.clients / "work" / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.port = server.port
        self.socket = server.folder / "socket"


def junit(path):
    """The tests of a JUnit report: name, outcome, text of the failure."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        outcome, text = "passed", ""
        for part in case:
            if part.tag in ("failure", "error"):
                outcome, text = "failed", text + (part.get("message") or "") + "\n" + (part.text or "")
            elif part.tag == "skipped" and outcome == "passed":
                # ginkgo reports tests outside of the selected files, too.
                outcome = "not selected" if part.get("message") == "skipped" else "skipped"
        if outcome != "not selected":
            yield f"{case.get('classname')}.{case.get('name')}", outcome, text


def checks(path):
    """The tests of our own checks: lines `ok NAME` and `not ok NAME: TEXT`, and `end` after the last one."""
    lines = path.read_text(errors="replace").splitlines()
    if "end" not in lines:
        yield "the end of the checks", "failed", "\n".join(lines[-5:])
    for line in lines:
        if line.startswith("ok "):
            yield line[3:], "passed", ""
        elif line.startswith("not ok "):
            name, _, text = line[7:].partition(": ")
            yield name, "failed", text


def missing_commands():
    """The commands that docs/redis-commands.md lists as missing: the third column of its table."""
    rows = [line.split("|") for line in (ROOT / "docs/redis-commands.md").read_text().splitlines() if "|" in line]
    return {name for row in rows for name in re.findall(r"`([A-Z-]+)`", row[3])}


def matcher(pattern):
    """A pattern of `known.toml`: `*` stands for any text."""
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def listed(suite, known):
    """The tables of a suite in `known.toml`: its own, and those that it shares with other suites."""
    tables = [known.get(name, {}) for name in {suite.name, suite.known or suite.name}]
    return {kind: {p: reason for table in tables for p, reason in table.get(kind, {}).items()} for kind in KINDS}


def judge(suite, tests, known, missing):
    """Counts the tests of a suite. Returns its figures and the problems."""
    lists = {kind: [(matcher(p), p, reason) for p, reason in known.get(kind, {}).items()] for kind in KINDS}
    counts, reasons, problems, used = collections.Counter(), collections.Counter(), [], set()
    for name, outcome, text in tests:
        kind, entry = next(((kind, e) for kind, all in lists.items() for e in all if e[0].fullmatch(name)), (None, None))
        if entry:
            used.add(entry[1])
        if outcome == "passed" and entry:
            problems.append(f"{name} passes, but known.toml lists it: {entry[2]}")
        if outcome == "failed":
            unknown = {word.upper() for word in UNKNOWN.findall(text)}
            if entry and kind == "failed":
                reasons[entry[2]] += 1
            elif entry or unknown & missing:
                outcome = "not claimed"
            else:
                first = text.strip().partition("\n")[0][:300]
                problems.append(f"{name} fails: {first}")
        counts[outcome] += 1
    unused = [p for all in lists.values() for _, p, _ in all if p not in used]
    problems += [f"known.toml lists {pattern}, but no such test ran" for pattern in unused]
    if not counts["passed"]:
        problems.append("no test passed")
    figures = {
        "framework": suite.framework,
        "version": suite.version,
        "suite": suite.tests,
        "run": counts["passed"] + counts["failed"],
        "passed": counts["passed"],
        "failed": counts["failed"],
        "not_claimed": counts["not claimed"],
        "skipped": counts["skipped"],
        "reasons": [{"tests": count, "reason": reason} for reason, count in sorted(reasons.items())],
    }
    return figures, [f"{suite.name}: {problem}" for problem in problems]


def main():
    import suites

    parser = argparse.ArgumentParser()
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target")
    parser.add_argument("--server", type=pathlib.Path)
    parser.add_argument("suites", nargs="*")
    options = parser.parse_args()
    target = options.target.resolve()
    server_program = options.server or target / "release/bristlecone"
    known = tomllib.loads((HERE / "known.toml").read_text())
    missing = missing_commands()
    chosen = [s for s in suites.ALL if not options.suites or s.name in options.suites]
    rows, problems = [], []
    for suite in chosen:
        start = time.monotonic()
        say(f"== {suite.name}: {suite.framework} {suite.version}")
        server = Server(server_program, target / "clients" / "server" / suite.name, suite.memcached)
        try:
            place = Place(target, suite.name, server)
            tests = [test for report in suite.run(place) for test in (junit if report.suffix == ".xml" else checks)(report)]
        finally:
            problem = server.stop()
        figures, wrong = judge(suite, tests, listed(suite, known), missing)
        wrong += [f"{suite.name}: {problem}"] if problem else []
        rows.append(figures)
        problems += wrong
        say("".join(f"   {line}\n" for line in wrong) + f"   {figures} in {time.monotonic() - start:.0f} s")
    sums = {name: sum(row[name] for row in rows) for name in ("run", "passed", "failed", "not_claimed", "skipped")}
    print(json.dumps(sums | {"rows": rows, "problems": problems}, indent=2))
    return 1 if problems or not rows else 0


if __name__ == "__main__":
    # An end by SIGTERM stops the server and the suite, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
