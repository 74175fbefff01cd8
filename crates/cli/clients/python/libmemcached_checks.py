"""The tools of libmemcached against a server: `memccapable` with one check for each of its tests, and our own checks of the others.

    libmemcached_checks.py PORT FOLDER
"""

import pathlib
import random
import re
import subprocess
import sys

PORT, FOLDER = int(sys.argv[1]), pathlib.Path(sys.argv[2])
MEMSLAP_KEYS = 2000


def run(name, *arguments):
    """Runs a tool. Returns its exit code and its output."""
    words = [name, f"--servers=127.0.0.1:{PORT}", *map(str, arguments)]
    done = subprocess.run(words, cwd=FOLDER, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr.decode(errors="replace").strip()


def must(name, *arguments):
    code, output, error = run(name, *arguments)
    assert code == 0 and not error, f"{name} ends with {code}: {error[:200]}"
    return output


def stat(name):
    found = re.search(rf"\s{name}: (\d+)", must("memcstat").decode())
    assert found, f"memcstat shows no {name}"
    return int(found.group(1))


def file(name, content):
    (FOLDER / name).write_bytes(content)
    return name


def copies_files_and_reads_them_back():
    content = random.Random(1).randbytes(300_000)
    must("memccp", "--set", file("large", content))
    must("memccp", file("small", b"tea\n"), file("empty", b""))
    must("memccat", "--file=back", "large")
    assert (FOLDER / "back").read_bytes() == content, "the file differs"
    assert must("memccat", "small") == b"tea\n\n", "memccat differs"


def stores_flags():
    must("memccp", "--flags=17", file("flagged", b"x"))
    assert b"17" in must("memccat", "--flags", "flagged")


def adds_absent_keys_and_replaces_present_ones_only():
    must("memccp", "--add", file("added", b"1"))
    assert run("memccp", "--add", "added")[0] != 0, "a present key was added"
    must("memccp", "--replace", file("added", b"2"))
    assert must("memccat", "added").strip() == b"2"
    assert run("memccp", "--replace", file("absent", b"3"))[0] != 0, "an absent key was replaced"


def finds_touches_and_removes_keys():
    must("memccp", file("key", b"x"))
    must("memcexist", "key")
    must("memctouch", "--expire=100", "key")
    must("memcexist", "key")
    must("memcrm", "key")
    for tool in ("memcexist", "memcrm", "memccat", "memctouch"):
        assert run(tool, "key")[0] != 0, f"{tool} finds a removed key"


def pings_and_shows_statistics():
    must("memcping")
    before = stat("cmd_set")
    must("memccp", file("one", b"1"))
    assert stat("cmd_set") == before + 1
    assert stat("curr_items") > 0


def flushes():
    must("memccp", file("gone", b"x"))
    must("memcflush")
    assert run("memcexist", "gone")[0] != 0, "a key survives"


def bears_the_load_of_memcslap(*arguments):
    def check():
        before = stat("cmd_set"), stat("cmd_get")
        must("memcslap", "--flush", "--concurrency=4", f"--execute-number={MEMSLAP_KEYS}", *arguments)
        after = stat("cmd_set"), stat("cmd_get")
        assert sum(after) - sum(before) >= MEMSLAP_KEYS, f"from {before} to {after}"

    return check


def bears_the_load_of_memcaslap():
    output = must("memcaslap", "--threads=1", "--concurrency=8", "--execute_number=20000", "--verify=1.0").decode()
    assert re.search(r"TPS: [1-9]", output), output[-300:]
    for name in ("get_misses", "verify_misses", "verify_failed"):
        assert re.search(rf"{name}: 0\b", output), output[-300:]


CHECKS = {
    "memccp and memccat": copies_files_and_reads_them_back,
    "flags": stores_flags,
    "memccp --add, --replace": adds_absent_keys_and_replaces_present_ones_only,
    "memcexist, memctouch, memcrm": finds_touches_and_removes_keys,
    "memcping and memcstat": pings_and_shows_statistics,
    "memcflush": flushes,
    "memcslap get": bears_the_load_of_memcslap("--test=get"),
    "memcslap mget": bears_the_load_of_memcslap("--test=mget"),
    "memcslap set": bears_the_load_of_memcslap("--test=set"),
    "memcslap set, without waiting": bears_the_load_of_memcslap("--test=set", "--non-blocking", "--tcp-nodelay"),
    "memcslap set, noreply": bears_the_load_of_memcslap("--test=set", "--noreply"),
    "memcaslap": bears_the_load_of_memcaslap,
}


def capable():
    """The tests of memccapable: lines `NAME [pass]`."""
    words = ["memccapable", "-a", "-h", "127.0.0.1", "-p", str(PORT)]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    lines = re.findall(r"^(ascii .*?)\s+\[(.*)\]$", done.stdout, re.MULTILINE)
    for name, outcome in lines:
        print(f"ok {name}" if outcome == "pass" else f"not ok {name}: {outcome}")
    if done.returncode or not lines:
        print(f"not ok memccapable: code {done.returncode}: {done.stderr[-200:]}")


for name, check in CHECKS.items():
    try:
        check()
        print(f"ok {name}")
    except Exception as error:
        print(f"not ok {name}: {error or 'an assertion is wrong'}".replace("\n", " "))
capable()
print("end")
