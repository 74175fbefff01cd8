"""The suites: each installs its framework and runs its tests. A report is a JUnit file (`.xml`), or a text of checks (`.txt`)."""

import dataclasses
import json
import re
import shutil
import subprocess
import tarfile
import typing

from run import HERE, command, install

OWN_TESTS = "its own tests"
OUR_CHECKS = "our own checks"


@dataclasses.dataclass
class Suite:
    name: str
    framework: str
    version: str
    tests: str
    run: typing.Callable
    # The name of its table in `known.toml`, if it is not the suite's.
    known: str = ""
    # True if its clients speak the protocol of memcached.
    memcached: bool = False


# Python

REQUIREMENTS = HERE / "python" / "requirements.txt"


def pinned(package):
    """The version of a package in the requirements."""
    lines = REQUIREMENTS.read_text().splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith(f"{package}=="))


def python(place):
    """The interpreter of an environment with all Python packages."""

    def make(folder):
        install(["python3", "-m", "venv", folder])
        install([folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", REQUIREMENTS])

    return place.stamped("venv", REQUIREMENTS.read_text(), make) / "bin/python"


def source(place, package):
    """The unpacked source distribution of a Python package."""
    interpreter, version = python(place), pinned(package)

    def make(folder):
        words = [interpreter, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        install([*words, "--no-binary", ":all:", "-d", folder, f"{package}=={version}"])
        for archive in folder.glob("*.tar.gz"):
            with tarfile.open(archive) as files:
                files.extractall(folder, filter="data")
            archive.unlink()

    folder = place.stamped(f"source-{package}", version, make)
    return next(path for path in folder.iterdir() if path.is_dir())


def pytest(place, folder, name, arguments, env=None):
    """Runs pytest in a folder. Returns the report."""
    report = place.folder / f"{name}.xml"
    words = [python(place), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", "--tb=native"]
    words += ["--timeout", "30", "--junitxml", report, *arguments]
    command(words, 900, folder, env, place.folder / f"{name}.log")
    return report


# Modules without tests of modules, clusters and sentinels.
REDIS_PY = """commands pipeline client encoding monitor connection connection_pool connect credentials retry multiprocessing
lock data_structure pubsub scripting function hash keyspace_notifications command_parser max_connections_error
cwe_404""".split()
REDIS_PY_MARKS = "redismod onlycluster ssl replica experimental cp_integration".split()


def redis_py(protocol):
    def run(place):
        folder = source(place, "redis")
        files = [f"{where}/test_{name}.py" for name in REDIS_PY for where in ("tests", "tests/test_asyncio")]
        files = [file for file in files if (folder / file).exists()]
        marks = " and ".join(f"not {mark}" for mark in REDIS_PY_MARKS)
        url = f"redis://127.0.0.1:{place.port}/0"
        arguments = [*files, "-m", marks, "--redis-url", url, "--protocol", protocol]
        return [pytest(place, folder, "tests", arguments)]

    return run


DJANGO = """cache.tests.RedisCacheTests sessions_tests.tests.CacheSessionTests sessions_tests.tests.CacheDBSessionTests
sessions_tests.tests.CacheDBSessionWithTimeZoneTests""".split()


def django(place):
    """Django's tests of the Redis cache, and those of sessions in the default cache."""
    tests = source(place, "Django") / "tests"
    env = {"REDIS_URL": f"redis://127.0.0.1:{place.port}", "REPORTS": str(place.folder), "PYTHONPATH": str(HERE / "python")}
    words = [python(place), "-W", "ignore", "runtests.py", "--settings", "django_settings", "--parallel", "1", *DJANGO]
    command(words, 900, tests, env, place.folder / "tests.log")
    return sorted(place.folder.glob("*.xml"))


# The settings without a sentinel.
DJANGO_REDIS = "sqlite gzip herd json lz4 msgpack sharding usock zlib zstd".split()


def django_redis(place):
    """The tests of django-redis once for each of their settings, with the address of this server."""
    folder = place.folder / "source"
    shutil.copytree(source(place, "django-redis"), folder)
    for file in folder.glob("tests/settings/*.py"):
        text = file.read_text().replace("127.0.0.1:6379", f"127.0.0.1:{place.port}")
        file.write_text(text.replace("/tmp/redis.sock", str(place.socket)))
    reports = []
    for name in DJANGO_REDIS:
        setting = name if name == "sqlite" else f"sqlite_{name}"
        env = {"CACHE_SETTING": setting, "PYTHONPATH": f"{HERE / 'python'}:{folder / 'tests'}"}
        arguments = ["tests", "-o", "addopts=", "-p", "one_setting", "-p", "no:django"]
        reports.append(pytest(place, folder, setting, arguments, env))
    return reports


def flask_session(place):
    env = {"REDIS_URL": f"redis://127.0.0.1:{place.port}/0"}
    return [pytest(place, HERE / "python", "tests", ["test_flask_session.py"], env)]


def pymemcache(place):
    """The tests of pymemcache, also those that need a server, without those of TLS."""
    arguments = ["pymemcache/test", "--server", "127.0.0.1", "--port", place.port, "-o", "addopts="]
    arguments += ["-m", "not benchmark", "-k", "not tls"]
    return [pytest(place, source(place, "pymemcache"), "tests", arguments)]


def libmemcached(place):
    """The tools of libmemcached: `memccapable`, which is a test of servers, and our checks of the other tools."""
    if not shutil.which("memccapable"):
        raise SystemExit("libmemcached's tools are missing: as root: apt-get install -y --no-install-recommends libmemcached-tools")
    report = place.folder / "tests.txt"
    command(["python3", "-B", HERE / "python/libmemcached_checks.py", place.port, place.folder], 300, log=report)
    return [report]


def libmemcached_version():
    """The version that the tools print: `... v1.1 (libmemcached v1.1.4)`."""
    said = subprocess.run(["memccat", "--version"], capture_output=True, text=True).stdout if shutil.which("memccat") else ""
    found = re.search(r"libmemcached v([0-9.]+)", said)
    return found.group(1) if found else "unknown"


# JavaScript

PACKAGES = json.loads((HERE / "js" / "package.json").read_text())["dependencies"]


def node(place):
    """A folder with all npm packages, and our checks."""

    def make(folder):
        shutil.copy(HERE / "js" / "package.json", folder)
        install(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"], folder=folder)

    folder = place.stamped("node", (HERE / "js" / "package.json").read_text(), make)
    shutil.copytree(HERE / "js", folder, dirs_exist_ok=True)
    return folder


def node_test(file, client=""):
    def run(place):
        report = place.folder / "tests.xml"
        words = ["node", "--test", "--test-reporter=junit", f"--test-reporter-destination={report}", file]
        command(words, 300, node(place), {"PORT": str(place.port), "CLIENT": client}, place.folder / "tests.log")
        return [report]

    return run


def vitest(place, file):
    report = place.folder / "tests.xml"
    words = ["node_modules/.bin/vitest", "run", "--reporter=junit", f"--outputFile={report}", file]
    command(words, 300, node(place), {"PORT": str(place.port)}, place.folder / "tests.log")
    return [report]


def connect_redis(place):
    folder = node(place)
    for file in ("index.ts", "index_test.ts"):
        shutil.copy(folder / "node_modules/connect-redis" / file, folder / "connect_redis")
    return vitest(place, "connect_redis/index_test.ts")


def keyv(place):
    return vitest(place, "keyv.suite.mjs")


# Go

GO_REDIS = "9.17.0"
GO_FILES = "commands bitmap_commands iterator pipeline pool pubsub redis tx race acl_commands monitor command error".split()


def go_redis(place):
    """The tests of go-redis that need one server. A test of the module connects to several servers first; here it does not."""
    env = {"GOPATH": str(place.clients / "go-path"), "GOFLAGS": "-modcacherw"}

    def make(folder):
        module = f"github.com/redis/go-redis/v9@v{GO_REDIS}"
        (folder / "go.mod").write_text("module checks\n")
        install(["go", "mod", "download", module], folder=folder, env=env)
        shutil.copytree(place.clients / "go-path/pkg/mod" / module, folder / "source")
        main = folder / "source/main_test.go"
        text = main.read_text().replace('redisStackPort = "6379"', 'redisStackPort = os.Getenv("REDIS_PORT")')
        main.write_text(text.replace("if !RECluster {", "if false {"))
        install(["go", "test", "-c", "-o", "tests", "."], folder=folder / "source", env=env)

    folder = place.stamped("go-redis", GO_REDIS, make) / "source"
    report = place.folder / "tests.xml"
    files = [f"--ginkgo.focus-file=/{name}_test.go" for name in GO_FILES]
    # `ChannelMessage` publishes before its subscription is confirmed. The order of the tests is fixed, because some leave users.
    options = ["--ginkgo.skip=cluster races|should ChannelMessage", "--ginkgo.seed=1", "--ginkgo.timeout=600s", f"--ginkgo.junit-report={report}", "--ginkgo.no-color"]
    env = {"REDIS_PORT": str(place.port), "REDIS_VERSION": "7.0"}
    words = [folder / "tests", "-test.run=TestGinkgoSuite", *files, *options]
    command(words, 900, folder, env, place.folder / "tests.log")
    return [report]


# Java

POM = HERE / "java" / "pom.xml"


def artifact(name):
    """The version of an artifact in the Maven project."""
    return re.search(rf"<artifactId>{name}</artifactId><version>(.*?)</version>", POM.read_text()).group(1)


def compiled(place):
    """The class path of our checks with all packages."""

    def make(folder):
        words = ["mvn", "-q", "-B", f"-Dmaven.repo.local={place.clients / 'maven'}", "-f", POM]
        install([*words, "dependency:copy-dependencies", f"-DoutputDirectory={folder}"])

    jars = place.stamped("jars", POM.read_text(), make) / "*"
    classes = place.clients / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    command(["javac", "-d", classes, "-cp", jars, *sorted(POM.parent.glob("*.java"))], 300)
    return f"{classes}:{jars}"


def java(main):
    def run(place):
        report = place.folder / "tests.txt"
        command(["java", "-cp", compiled(place), main, place.port], 300, log=report)
        return [report]

    return run


NODE_REDIS = "node_redis.test.mjs"
NPM = {name: version.rpartition("@")[2] for name, version in PACKAGES.items()}

ALL = [
    Suite("redis-py-2", "redis-py", pinned("redis") + ", RESP2", OWN_TESTS, redis_py("2"), "redis-py"),
    Suite("redis-py-3", "redis-py", pinned("redis") + ", RESP3", OWN_TESTS, redis_py("3"), "redis-py"),
    Suite("django", "Django", pinned("Django"), OWN_TESTS + " of the Redis cache, and of sessions in it", django),
    Suite("django-redis", "django-redis", pinned("django-redis"), OWN_TESTS, django_redis),
    Suite("flask-session", "Flask-Session", pinned("Flask-Session"), OUR_CHECKS, flask_session),
    Suite("node-redis-4", "node-redis", NPM["redis-4"], OUR_CHECKS, node_test(NODE_REDIS, "redis-4")),
    Suite("node-redis-5", "node-redis", NPM["redis"], OUR_CHECKS, node_test(NODE_REDIS, "redis")),
    Suite("ioredis", "ioredis", NPM["ioredis"], OUR_CHECKS, node_test("ioredis.test.mjs")),
    Suite("connect-redis", "connect-redis", NPM["connect-redis"], OWN_TESTS, connect_redis),
    Suite("keyv", "@keyv/redis", NPM["@keyv/redis"], "the published test suite of keyv", keyv),
    Suite("go-redis", "go-redis", GO_REDIS, OWN_TESTS, go_redis),
    Suite("jedis", "jedis", artifact("jedis"), OUR_CHECKS, java("JedisChecks")),
    Suite("lettuce", "lettuce", artifact("lettuce-core"), OUR_CHECKS, java("LettuceChecks")),
    Suite("pymemcache", "pymemcache", pinned("pymemcache"), OWN_TESTS, pymemcache, memcached=True),
    Suite("libmemcached", "libmemcached", libmemcached_version(), "`memccapable`; our own checks", libmemcached, memcached=True),
]
