//! The limit of memory: it holds during a load, each policy evicts the right keys, and without eviction nothing is lost.

use std::time::{Duration, Instant};

use bristlecone::{Durability, Options};
use redis::{Commands as _, Connection, RedisResult, Value, cmd, pipe};
use server::Config;
use server::eviction::Policy;

use crate::common::TestServer;

const LIMIT: u64 = 8 << 20;
const VALUE_BYTES: usize = 1000;
/// Keys whose values are about a third of the limit.
const THIRD: usize = LIMIT as usize / 3 / VALUE_BYTES;

fn server(policy: Policy) -> TestServer {
    // Without syncs the tests of many single writes are fast.
    let options = Options::default().durability(Durability::Process);
    TestServer::over(options, Config { memory_bytes_max: LIMIT, memory_policy: policy, ..Config::default() })
}

fn key(kind: &str, number: usize) -> String {
    match kind {
        // In key order these are together, and in the order of writing.
        "hot-region" | "region" => format!("{kind}:{number:06}"),
        // Neighbours in key order are far apart in the order of writing.
        _ => format!("{:04}:{kind}:{number}", number * 7919 % 10_007),
    }
}

fn value() -> Vec<u8> {
    vec![b'v'; VALUE_BYTES]
}

/// Sets keys in small pipelines, and calls `between` after each.
fn load(
    server: &TestServer,
    client: &mut Connection,
    kind: &str,
    count: usize,
    mut between: impl FnMut(&mut Connection),
) {
    for start in (0..count).step_by(100) {
        let mut pipeline = pipe();
        (start..count.min(start + 100)).for_each(|number| {
            pipeline.set(key(kind, number), value()).ignore();
        });
        pipeline.exec(client).unwrap();
        let live = server.store.space().live_bytes;
        assert!(live <= LIMIT, "{live} bytes are in use");
        between(client);
    }
}

fn present(client: &mut Connection, kind: &str, count: usize) -> usize {
    (0..count).filter(|number| client.exists(key(kind, *number)).unwrap()).count()
}

fn info(client: &mut Connection, field: &str) -> String {
    let text: String = cmd("INFO").query(client).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {field} in {text}"))
}

fn error(result: RedisResult<Value>) -> String {
    let error = result.unwrap_err();
    format!("{} {}", error.code().unwrap_or_default(), error.detail().unwrap_or_default())
}

#[test]
fn memory_stays_below_the_limit_during_a_load_of_three_times_as_much() {
    for policy in [Policy::AllkeysLru, Policy::AllkeysLfu, Policy::AllkeysRandom] {
        let server = server(policy);
        let client = &mut server.client();
        load(&server, client, "k", THIRD * 9, |_| {});
        let kept: usize = cmd("DBSIZE").query(client).unwrap();
        let evicted: usize = info(client, "evicted_keys").parse().unwrap();
        assert_eq!(kept + evicted, THIRD * 9, "{policy}");
        // Nodes, and blocks that are larger than their records, take a part of the memory.
        assert!(kept > THIRD * 2, "{policy}: only {kept} keys are left");
        assert_eq!(info(client, "maxmemory"), LIMIT.to_string());
        assert_eq!(info(client, "maxmemory_policy"), policy.to_string());
        assert!(info(client, "used_memory").parse::<u64>().unwrap() <= LIMIT);
        assert_eq!(present(client, "k", THIRD * 9), kept, "{policy}");
    }
}

#[test]
fn engines_without_key_order_and_stores_without_tables_evict_too() {
    for options in [Options::default().engine("cdds-hash"), Options::default().tables(false)] {
        let options = options.durability(Durability::Process);
        let config = Config {
            memory_bytes_max: LIMIT,
            memory_policy: Policy::AllkeysLru,
            memory_samples: 10,
            ..Config::default()
        };
        let server = TestServer::over(options, config);
        let client = &mut server.client();
        for number in 0..THIRD * 6 {
            let _: () = client.set(key("k", number), value()).unwrap();
        }
        assert!(info(client, "evicted_keys").parse::<usize>().unwrap() > THIRD);
        // Without deadlines there is no candidate. The first writes may still find space.
        cmd("CONFIG").arg("SET").arg(&["maxmemory-policy", "volatile-ttl"]).exec(client).unwrap();
        let refused = (0..THIRD * 3).find_map(|number| {
            client.set::<_, _, Value>(key("more", number), value()).err().map(|error| error.to_string())
        });
        assert!(refused.is_some_and(|text| text.contains("used memory > 'maxmemory'")));
    }
}

#[test]
fn the_least_recently_used_keys_go_first() {
    for (hot_kind, cold_kind) in [("hot", "cold"), ("hot-region", "region")] {
        let server = server(Policy::AllkeysLru);
        let client = &mut server.client();
        let hot = THIRD / 3;
        load(&server, client, hot_kind, hot, |_| {});
        load(&server, client, cold_kind, THIRD * 6, |client| {
            let mut reads = pipe();
            (0..hot).for_each(|number| {
                reads.get(key(hot_kind, number)).ignore();
            });
            reads.exec(client).unwrap();
        });
        let (hot_left, cold_left) = (present(client, hot_kind, hot), present(client, cold_kind, THIRD * 6));
        assert!(hot_left > hot * 9 / 10, "{hot_left} of {hot} keys of {hot_kind} are left");
        assert!(cold_left < THIRD * 3, "{cold_left} keys of {cold_kind} are left");
    }
}

#[test]
fn the_least_frequently_used_keys_go_first() {
    let server = server(Policy::AllkeysLfu);
    let client = &mut server.client();
    let hot = THIRD / 3;
    load(&server, client, "hot", hot, |_| {});
    for _ in 0..30 {
        let mut reads = pipe();
        (0..hot).for_each(|number| {
            reads.cmd("TOUCH").arg(key("hot", number)).ignore();
        });
        reads.exec(client).unwrap();
    }
    // The hot keys are not accessed any more. An LRU policy would evict them.
    load(&server, client, "cold", THIRD * 6, |_| {});
    let hot_left = present(client, "hot", hot);
    assert!(hot_left > hot * 9 / 10, "{hot_left} of {hot} hot keys are left");
    let frequency: u64 = cmd("OBJECT").arg("FREQ").arg(key("hot", 1)).query(client).unwrap();
    assert!(frequency > 5, "{frequency}");
}

#[test]
fn volatile_policies_spare_keys_without_a_deadline_until_none_has_one() {
    for policy in [Policy::VolatileLru, Policy::VolatileLfu, Policy::VolatileRandom, Policy::VolatileTtl] {
        let server = server(policy);
        let client = &mut server.client();
        load(&server, client, "kept", THIRD, |_| {});
        for number in 0..THIRD {
            let seconds = if number % 2 == 0 { 1_000 } else { 100_000 } + number as u64;
            let _: () = client.set_ex(key("brief", number), value(), seconds).unwrap();
        }
        // Another database has the same limit.
        cmd("SELECT").arg(3).exec(client).unwrap();
        load(&server, client, "more", THIRD, |_| {});
        cmd("SELECT").arg(0).exec(client).unwrap();
        assert_eq!(present(client, "kept", THIRD), THIRD, "{policy}");
        let brief = present(client, "brief", THIRD);
        assert!(brief < THIRD, "{policy}: {brief}");
        if policy == Policy::VolatileTtl {
            let (soon, late): (Vec<_>, Vec<_>) = (0..THIRD).partition(|number| number % 2 == 0);
            let mut left = |numbers: Vec<usize>| {
                numbers.into_iter().filter(|number| client.exists(key("brief", *number)).unwrap()).count()
            };
            let (soon_left, late_left) = (left(soon), left(late));
            assert!(soon_left == 0 || late_left == THIRD / 2, "{soon_left} and {late_left}");
        }
        // When no key has a deadline, the policy is as noeviction.
        let refused = (0..THIRD * 3).find_map(|number| {
            client.set::<_, _, Value>(key("last", number), value()).err().map(|error| error.to_string())
        });
        assert!(refused.is_some_and(|text| text.contains("OOM") || text.contains("maxmemory")), "{policy}");
        assert_eq!((present(client, "brief", THIRD), present(client, "kept", THIRD)), (0, THIRD), "{policy}");
    }
}

#[test]
fn without_eviction_writes_are_refused_and_nothing_is_lost() {
    let server = server(Policy::NoEviction);
    let client = &mut server.client();
    let mut written = 0;
    let refused = loop {
        match client.set::<_, _, Value>(key("k", written), value()) {
            Ok(_) => written += 1,
            Err(error) => break Err(error),
        }
        assert!(server.store.space().live_bytes <= LIMIT && written < THIRD * 4);
    };
    const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(error(refused), OOM);
    assert!(written > THIRD * 2, "only {written} keys fit");
    assert_eq!(present(client, "k", written), written);
    assert_eq!(info(client, "evicted_keys"), "0");
    // Commands that need no memory run.
    assert_eq!(client.get::<_, Vec<u8>>(key("k", 0)).unwrap(), value());
    assert!(client.expire::<_, bool>(key("k", 0), 1000).unwrap());
    let big = vec![b'x'; 64 << 10];
    for words in [vec!["APPEND", "k"], vec!["SETNX", "new"], vec!["GETSET", "k"], vec!["MSET", "k"]] {
        assert_eq!(error(cmd(words[0]).arg(words[1]).arg(&big).query(client)), OOM, "{words:?}");
    }
    assert_eq!(error(cmd("SETRANGE").arg("k").arg(1 << 24).arg("x").query(client)), OOM);
    assert_eq!(error(cmd("SETBIT").arg("k").arg(1 << 27).arg(1).query(client)), OOM);
    // In a transaction.
    cmd("MULTI").exec(client).unwrap();
    assert_eq!(error(cmd("SET").arg("k").arg(&big).query(client)), OOM);
    let aborted = error(cmd("EXEC").query(client));
    assert!(aborted.starts_with("EXECABORT Transaction discarded because of previous errors"), "{aborted}");
    // What other commands free can be used at once.
    for number in 0..200 {
        assert_eq!(client.del::<_, usize>(key("k", number)).unwrap(), 1);
    }
    for number in 0..50 {
        let _: () = client.set(key("new", number), value()).unwrap();
    }
    // Memory goes while a transaction is queued.
    cmd("MULTI").exec(client).unwrap();
    let _: Value = cmd("SET").arg("queued").arg("v").query(client).unwrap();
    cmd("CONFIG").arg("SET").arg(&["maxmemory", "1mb"]).exec(&mut server.client()).unwrap();
    assert_eq!(
        error(cmd("EXEC").query(client)),
        format!("EXECABORT Transaction discarded because of: {OOM}")
    );
    assert_eq!(present(client, "new", 50), 50);
    cmd("CONFIG").arg("SET").arg(&["maxmemory", "0"]).exec(client).unwrap();
    let _: () = client.set("queued", "v").unwrap();
}

#[test]
fn a_lower_limit_is_reached_without_writes_and_eviction_breaks_watches() {
    let server = server(Policy::AllkeysLru);
    let client = &mut server.client();
    load(&server, client, "k", THIRD, |_| {});
    for number in 0..THIRD {
        cmd("WATCH").arg(key("k", number)).exec(client).unwrap();
    }
    cmd("CONFIG").arg("SET").arg(&["maxmemory", "1500kb"]).exec(client).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.store.space().live_bytes > 1500 << 10 {
        assert!(Instant::now() < deadline, "{:?}", server.store.space());
        std::thread::sleep(Duration::from_millis(20));
    }
    cmd("MULTI").exec(client).unwrap();
    let _: Value = cmd("GET").arg("k").query(client).unwrap();
    assert_eq!(cmd("EXEC").query::<Value>(client).unwrap(), Value::Nil);
    // The background may still evict.
    let mut sum = || info(client, "evicted_keys").parse::<usize>().unwrap() + present(client, "k", THIRD);
    while sum() != THIRD {
        assert!(Instant::now() < deadline, "{} of {THIRD}", sum());
    }
    cmd("CONFIG").arg("RESETSTAT").exec(client).unwrap();
    assert_eq!(info(client, "evicted_keys"), "0");
}

#[test]
fn settings_have_the_names_and_errors_of_redis() {
    let server = TestServer::start();
    let client = &mut server.client();
    let mut get = |name: &str| -> Vec<String> { cmd("CONFIG").arg("GET").arg(name).query(client).unwrap() };
    let pairs = ["maxmemory", "0", "maxmemory-policy", "noeviction", "maxmemory-samples", "5"];
    assert_eq!(get("maxmemory*"), pairs);
    let client = &mut server.client();
    for (name, value, shown) in [
        ("maxmemory", "100mb", "104857600"),
        ("maxmemory", "2k", "2000"),
        ("maxmemory", "1GB", "1073741824"),
        ("maxmemory-policy", "Volatile-LFU", "volatile-lfu"),
        ("maxmemory-samples", "64", "64"),
    ] {
        cmd("CONFIG").arg("SET").arg(&[name, value]).exec(client).unwrap();
        let pair: Vec<String> = cmd("CONFIG").arg("GET").arg(name).query(client).unwrap();
        assert_eq!(pair, [name, shown]);
    }
    for (name, value, why) in [
        ("maxmemory", "1x", "argument must be a memory value"),
        ("maxmemory", "-1", "argument must be a memory value"),
        ("maxmemory", "99999999999999999999", "argument must be a memory value"),
        ("maxmemory-policy", "lru", "argument(s) must be one of the following: volatile-lru, volatile-lfu"),
        ("maxmemory-samples", "0", "argument must be between 1 and 64 inclusive"),
    ] {
        let text = error(cmd("CONFIG").arg("SET").arg(&[name, value]).query(client));
        assert!(text.contains(why), "{name} {value}: {text}");
    }
}

#[test]
fn object_tells_idle_times_and_frequencies_by_policy() {
    let server = server(Policy::AllkeysLru);
    let client = &mut server.client();
    let _: () = client.set("k", "v").unwrap();
    let object = |client: &mut Connection, what: &str, key: &str| {
        cmd("OBJECT").arg(what).arg(key).query::<Option<u64>>(client).map_err(|error| error.to_string())
    };
    std::thread::sleep(Duration::from_millis(1100));
    // EXISTS and OBJECT are no accesses.
    let _: bool = client.exists("k").unwrap();
    assert!(object(client, "IDLETIME", "k").unwrap() >= Some(1));
    let _: String = client.get("k").unwrap();
    let after: Option<u64> = object(client, "IDLETIME", "k").unwrap();
    assert!(after.is_some_and(|seconds| seconds < 60), "{after:?}");
    assert_eq!(object(client, "IDLETIME", "absent").unwrap(), None);
    assert_eq!(object(client, "FREQ", "absent").unwrap(), None);
    assert!(object(client, "FREQ", "k").unwrap_err().contains("An LFU maxmemory policy is not selected"));
    cmd("CONFIG").arg("SET").arg(&["maxmemory-policy", "allkeys-lfu"]).exec(client).unwrap();
    assert!(object(client, "IDLETIME", "k").unwrap_err().contains("An LFU maxmemory policy is selected"));
    // Pipelined reads count, too.
    let _: Vec<String> = pipe().get("k").get("k").query(client).unwrap();
    assert!(object(client, "FREQ", "k").unwrap() >= Some(5));
}
