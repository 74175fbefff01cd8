//! Tables of the records of benchmarks: other stores, trees, readers, reopening, the server.

use serde_json::Value;

use super::{figures, grouped, line, number, rows};

/// The rows of the README's table: the operation in the record and its name in the table.
const FIRST: [(&str, &str); 5] = [
    ("put", "put"),
    ("batch", "put in batches of 1,000"),
    ("get", "get"),
    ("scan", "scan of all, pairs"),
    ("range", "ranges of 100"),
];

/// The stores of a `bench store` record with their proper names. Those that the record lacks are omitted.
fn stores(figures: &Value) -> Vec<(&'static str, &Value)> {
    const NAMES: [(&str, &str); 6] = [
        ("bristlecone", "Bristlecone"),
        ("lmdb", "LMDB"),
        ("rocksdb", "RocksDB"),
        ("redb", "redb"),
        ("fjall", "fjall"),
        ("berkeley", "Berkeley DB"),
    ];
    let rows = figures["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |name: &str| rows.iter().find(|row| row["name"] == name);
    NAMES.iter().filter_map(|(name, proper)| Some((*proper, of(name)?))).collect()
}

fn head(first: &str, stores: &[(&str, &Value)]) -> Vec<String> {
    let names: Vec<_> = stores.iter().map(|(name, _)| *name).collect();
    vec![format!("| {first} | {} |", names.join(" | ")), format!("|---|{}", "--:|".repeat(names.len()))]
}

/// A figure of a store in a column.
fn figure(row: &Value, column: usize, name: &str) -> Result<f64, String> {
    let missing = || format!("{}: no {name} in column {column}", row["name"]);
    row["cells"][column][name].as_f64().ok_or_else(missing)
}

fn per_second(row: &Value, column: usize) -> Result<f64, String> {
    figure(row, column, "per_second")
}

/// The README's table: operations per second with one thread, the fastest store of a row in bold. Berkeley DB is omitted to save width.
pub fn first_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let mut stores = stores(&figures);
    stores.retain(|(name, _)| *name != "Berkeley DB");
    if stores.is_empty() {
        return Ok(None);
    }
    let columns = figures["columns"].as_array().map_or(&[][..], Vec::as_slice);
    // A relative path is a directory of the machine's disk.
    let backing = figures["backing"].as_str().filter(|path| path.starts_with('/'));
    let backing = backing.map_or("a disk".to_owned(), |path| format!("`{path}`"));
    let durability = figures["durability"].as_str().unwrap_or_default();
    let keys = grouped(figures["keys"].as_u64().unwrap_or(0));
    let mut lines = head(&format!("{keys} keys, {backing}, `{durability}`"), &stores);
    for (verb, name) in FIRST {
        let column = columns.iter().position(|column| column["verb"] == verb && column["threads"] == 1);
        let column = column.ok_or_else(|| format!("no column of {verb} with one thread"))?;
        let rates = stores.iter().map(|(_, row)| per_second(row, column)).collect::<Result<Vec<_>, _>>()?;
        let fastest = rates.iter().copied().fold(0.0, f64::max);
        let cell = |rate: f64| {
            let text = grouped(rate.round() as u64);
            if rate == fastest { format!("**{text}**") } else { text }
        };
        lines.push(line(name, &rates.into_iter().map(cell).collect::<Vec<_>>()));
    }
    Ok(Some(lines))
}

/// All columns of a `bench store` record: operations per second, with the ratio to Bristlecone, and counted syncs for each commit.
pub fn stores_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let stores = stores(&figures);
    if stores.is_empty() {
        return Ok(None);
    }
    let mut lines = head("operations per second", &stores);
    for (at, column) in figures["columns"].as_array().into_iter().flatten().enumerate() {
        let cell = |(name, row): &(&str, &Value)| {
            let rate = grouped(per_second(row, at)?.round() as u64);
            let ratio = figure(row, at, "ratio")?;
            Ok(if *name == "Bristlecone" { rate } else { format!("{rate} ({ratio:.2})") })
        };
        let cells = stores.iter().map(cell).collect::<Result<Vec<_>, String>>()?;
        lines.push(line(column["label"].as_str().unwrap_or_default(), &cells));
    }
    let labels = stores.first().and_then(|(_, row)| row["syncs"].as_array()).into_iter().flatten();
    for (at, label) in labels.enumerate() {
        let counts: Vec<_> = stores.iter().map(|(_, row)| row["syncs"][at]["per_commit"].as_f64()).collect();
        if counts.iter().all(|count| count.is_some_and(|count| count < 0.0005)) {
            continue; // would be a row of zeros
        }
        let cell = |count: Option<f64>| count.map_or("not counted".to_owned(), |count| format!("{count:.3}"));
        let cells: Vec<_> = counts.into_iter().map(cell).collect();
        lines.push(line(
            &format!("syncs per commit: {}", label["label"].as_str().unwrap_or_default()),
            &cells,
        ));
    }
    Ok(Some(lines))
}

/// The text of a figure.
type Show = fn(f64) -> String;

/// A `bench flash` record: for each size of the data and each durability, the operations per second, and what the stores wrote and hold.
pub fn flash_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let mut lines = Vec::new();
    for part in figures["parts"].as_array().into_iter().flatten() {
        let stores = stores(part);
        if lines.is_empty() {
            lines = head("operations per second (to the best other store)", &stores);
        }
        let size = part["size"].as_f64().unwrap_or(0.0);
        let what = format!("{size} times the memory, {}", part["durability"].as_str().unwrap_or_default());
        // A store without a result was killed for its memory.
        let show = |value: &Value, show: Show| value.as_f64().map_or("—".to_owned(), show);
        for (at, label) in part["columns"].as_array().into_iter().flatten().enumerate() {
            let cell = |(name, row): &(&str, &Value)| {
                let rate = show(&row["cells"][at]["per_second"], |rate| grouped(rate.round() as u64));
                match part["ratios"][at].as_f64().filter(|_| *name == "Bristlecone") {
                    Some(ratio) => format!("{rate} ({ratio:.2})"),
                    None => rate,
                }
            };
            let cells: Vec<_> = stores.iter().map(cell).collect();
            lines.push(line(&format!("{what}: {}", label.as_str().unwrap_or_default()), &cells));
        }
        let others: [(&str, &str, Show); 3] = [
            ("bytes written per byte put", "write_amplification", |ratio| format!("{ratio:.2}")),
            ("bytes of files per byte of pairs", "space_amplification", |ratio| format!("{ratio:.2}")),
            ("open after a kill, ms", "reopen_seconds", |seconds| format!("{:.1}", seconds * 1000.0)),
        ];
        for (label, name, how) in others {
            let cells: Vec<_> = stores.iter().map(|(_, row)| show(&row[name], how)).collect();
            lines.push(line(&format!("{what}: {label}"), &cells));
        }
    }
    Ok((!lines.is_empty()).then_some(lines))
}

/// A `bench trees` record: nanoseconds for each operation of each tree, and the instructions of those that were counted. The first column's
/// head has the memory's own times.
pub fn trees_table(text: &str) -> Result<Option<Vec<String>>, String> {
    const OPERATIONS: [&str; 9] = [
        "load",
        "search hit",
        "search miss",
        "insert",
        "update",
        "delete",
        "scan 100",
        "get 64",
        "insert 64",
    ];
    let figures = figures(text)?;
    if rows(&figures).is_empty() {
        return Ok(None);
    }
    let memory = ["read_ns", "flush_ns", "inner_ns"].map(|name| number(&figures, name));
    let [read, flush, inner] = memory;
    let head = format!("ns (R = {:.0}, F = {:.0}, I = {:.0})", read?, flush?, inner?);
    let mut lines = vec![
        format!("| {head} | {} |", OPERATIONS.join(" | ")),
        format!("|{}", "---|".repeat(OPERATIONS.len() + 1)),
    ];
    for row in rows(&figures) {
        let cells = OPERATIONS.map(|name| Ok(format!("{:.0}", number(&row["ns"], name)?)));
        let cells = cells.into_iter().collect::<Result<Vec<_>, String>>()?;
        lines.push(line(row["name"].as_str().unwrap_or_default(), &cells));
    }
    for row in rows(&figures).iter().filter(|row| row["executed"].is_object()) {
        let count =
            |name| row["executed"][name].as_f64().map_or(String::new(), |count| format!("{count:.0}"));
        let name = row["name"].as_str().unwrap_or_default();
        lines.push(line(&format!("{name}: instructions"), &OPERATIONS.map(count)));
    }
    Ok(Some(lines))
}

/// A `bench readers` record: lookups per second of elapsed time and of processor time.
pub fn readers_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    if rows(&figures).is_empty() {
        return Ok(None);
    }
    let mut lines = vec![
        "| readers | gets per second | gets per second of processor time | writes per second |".to_owned(),
        "|---|---|---|---|".to_owned(),
    ];
    for row in rows(&figures) {
        let beside = if row["beside_writer"] == true { " and a writer" } else { "" };
        let rate = |name: &str| Ok::<_, String>(grouped(number(row, name)?.round() as u64));
        let writes = if beside.is_empty() { String::new() } else { rate("writes_per_second")? };
        let cells = [rate("gets_per_second")?, rate("gets_per_cpu_second")?, writes];
        lines.push(line(&format!("{}{beside}", row["readers"]), &cells));
    }
    Ok(Some(lines))
}

/// A record of the memory of a store over a run.
pub fn memory_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let budget = number(&figures, "budget_bytes")?;
    let mut lines = vec![
        "| phase | operations per second | memory at most, MiB | to the budget |".to_owned(),
        "|---|--:|--:|--:|".to_owned(),
    ];
    for phase in figures["phases"].as_array().into_iter().flatten() {
        let peak = number(phase, "peak_bytes")?;
        let cells = [
            grouped(number(phase, "per_second")?.round() as u64),
            format!("{:.0}", peak / (1 << 20) as f64),
            format!("{:.2}", peak / budget),
        ];
        lines.push(line(phase["name"].as_str().unwrap_or_default(), &cells));
    }
    Ok(Some(lines))
}

/// A `bench reopen` record: microseconds to open a store that was not closed.
pub fn reopen_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    if rows(&figures).is_empty() {
        return Ok(None);
    }
    let mut lines =
        vec![
            "| engine | keys | open: microseconds, median | most | then milliseconds until all keys are counted | milliseconds until lookups have full speed | lookups per second after the work |".to_owned(),
            "|---|---|---|---|---|---|---|".to_owned(),
        ];
    for row in rows(&figures) {
        let keys = grouped(row["keys"].as_u64().unwrap_or_default());
        let time = |name: &str| Ok::<_, String>(format!("{:.0}", number(row, name)?));
        let milliseconds = |name: &str| Ok::<_, String>(format!("{:.0}", number(row, name)? / 1000.0));
        let rate = grouped(number(row, "full_rate")?.round() as u64);
        let cells = [
            keys,
            time("open_us")?,
            time("open_us_max")?,
            milliseconds("counted_us")?,
            milliseconds("full_speed_us")?,
            rate,
        ];
        lines.push(line(row["tree"].as_str().unwrap_or_default(), &cells));
    }
    Ok(Some(lines))
}

/// A record of the server beside Redis: thousands of commands per second, the ratio to Redis, and the 99th percentile of both.
pub fn serve_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    if rows(&figures).is_empty() {
        return Ok(None);
    }
    let mut lines = vec![
        "| durability, value | connections, pipeline | SET | GET | p99 of SET, GET in ms (Redis) | syncs per SET |".to_owned(),
        "|---|---|---|---|---|---|".to_owned(),
    ];
    for pair in rows(&figures).chunks(2) {
        let [set, get] = pair else { return Err("a row without its partner".to_owned()) };
        let text = |name: &str| set[name].as_str().unwrap_or_default().to_owned();
        let whole = |name: &str| number(set, name).map(|number| number as u64);
        let rate = |row: &Value| -> Result<String, String> {
            Ok(format!("{:.1} ({:.2})", number(row, "per_second")? / 1000.0, number(row, "ratio")?))
        };
        let p99 = |row: &Value| -> Result<String, String> {
            Ok(format!("{:.2} ({:.2})", number(row, "p99_ms")?, number(row, "redis_p99_ms")?))
        };
        let syncs = set["syncs_per_set"].as_f64().map(|syncs| format!("{syncs:.3}")).unwrap_or_default();
        let first = format!("{}, {} bytes", text("level"), whole("value_bytes")?);
        let load = format!("{}, {}", whole("connections")?, whole("pipeline")?);
        let latencies = format!("{}, {}", p99(set)?, p99(get)?);
        lines.push(line(&first, &[load, rate(set)?, rate(get)?, latencies, syncs]));
    }
    Ok(Some(lines))
}

/// The workloads of YCSB: thousands of operations per second, the ratios to Redis, and the 99th percentile of the operation that a workload
/// mainly has.
pub fn ycsb_table(text: &str) -> Result<Option<Vec<String>>, String> {
    const SERVERS: [&str; 4] = ["process", "redis_none", "power", "redis_always"];
    let figures = figures(text)?;
    let mut lines = vec![
        "| workload | process (to Redis) | Redis, no persistence | power (to Redis) | Redis, always | operation | p99 in ms: process, Redis, power, Redis |"
            .to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    for row in rows(&figures) {
        let rate = |name: &str| number(&row[name], "per_second").map(|rate| rate / 1000.0);
        let (process, none, power, always) =
            (rate(SERVERS[0])?, rate(SERVERS[1])?, rate(SERVERS[2])?, rate(SERVERS[3])?);
        let kind =
            ["SCAN", "READ", "INSERT"].into_iter().find(|kind| row["process"]["p99_ms"][kind].is_number());
        let kind = kind.ok_or_else(|| format!("no operation in {row}"))?;
        let p99 = |name: &&str| Ok(format!("{:.1}", number(&row[name]["p99_ms"], kind)?));
        let cells = [
            format!("{process:.1} ({:.2})", process / none),
            format!("{none:.1}"),
            format!("{power:.1} ({:.2})", power / always),
            format!("{always:.1}"),
            kind.to_lowercase(),
            SERVERS.iter().map(p99).collect::<Result<Vec<_>, String>>()?.join(", "),
        ];
        lines.push(line(row["workload"].as_str().unwrap_or_default(), &cells));
    }
    Ok((lines.len() > 2).then_some(lines))
}

/// Our own load in a record of the server: thousands of commands per second, the ratios to Redis and to memcached, and the 99th percentile.
pub fn own_load_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    let Some(rows) = figures["own_load"].as_array().filter(|rows| !rows.is_empty()) else { return Ok(None) };
    let mut lines = vec![
        "| value | connections, pipeline | command | Bristlecone (to Redis; to memcached) | Redis | memcached | p99 in ms: Bristlecone, Redis, memcached |".to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    for row in rows {
        let whole = |name: &str| number(row, name).map(|number| number as u64);
        let rate = |name: &str| number(&row[name], "per_second");
        let p99 = |name: &str| number(&row[name], "p99_ms");
        let (ours, redis, memcached) = (rate("ours")?, rate("redis")?, rate("memcached")?);
        let cells = [
            format!("{}, {}", whole("connections")?, whole("pipeline")?),
            row["command"].as_str().unwrap_or_default().to_owned(),
            format!("{:.1} ({:.2}; {:.2})", ours / 1000.0, ours / redis, ours / memcached),
            format!("{:.1}", redis / 1000.0),
            format!("{:.1}", memcached / 1000.0),
            format!("{:.2}, {:.2}, {:.2}", p99("ours")?, p99("redis")?, p99("memcached")?),
        ];
        lines.push(line(&format!("{} bytes", whole("value_bytes")?), &cells));
    }
    Ok(Some(lines))
}

/// Commands on structures and clients of memcached: thousands of commands per second of both servers, the ratio, and its target.
pub fn types_table(text: &str) -> Result<Option<Vec<String>>, String> {
    let figures = figures(text)?;
    if rows(&figures).is_empty() {
        return Ok(None);
    }
    let mut lines = vec![
        "| durability | pipeline | command | here | other | ratio | at least | holds | p99 in ms: here, other |"
            .to_owned(),
        "|---|---|---|---|---|---|---|---|---|".to_owned(),
    ];
    for row in rows(&figures) {
        let word = |name: &str| row[name].as_str().unwrap_or_default();
        let thousands = |name: &str| number(row, name).map(|rate| format!("{:.1}", rate / 1000.0));
        let holds = row["holds"].as_bool().ok_or("a row without a verdict")?;
        let cells = [
            (number(row, "pipeline")? as u64).to_string(),
            word("command").to_owned(),
            thousands("per_second")?,
            format!("{} {}", word("other"), thousands("other_per_second")?),
            format!("{:.2}", number(row, "ratio")?),
            format!("{:.1}", number(row, "least")?),
            if holds { "yes" } else { "no" }.to_owned(),
            format!("{:.2}, {:.2}", number(row, "p99_ms")?, number(row, "other_p99_ms")?),
        ];
        lines.push(line(word("level"), &cells));
    }
    Ok(Some(lines))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A record of two stores and a column for each operation, and a second one for puts.
    fn stores_record() -> Value {
        let column = |verb: &str, threads: u64| json!({ "label": format!("{verb}, {threads}"), "verb": verb, "threads": threads });
        let cells = |rate: f64, ratio: f64| vec![json!({ "per_second": rate, "ratio": ratio }); 6];
        json!({ "figures": {
            "keys": 1000,
            "backing": "/dev/shm",
            "durability": "process",
            "columns": [column("put", 1), column("put", 8), column("batch", 1), column("get", 1), column("scan", 1), column("range", 1)],
            "rows": [
                { "name": "redb", "cells": cells(1234.6, 0.5), "syncs": null },
                { "name": "bristlecone", "cells": cells(2469.0, 1.0), "syncs": [{ "label": "put, 1", "per_commit": 1.0 }] },
            ],
        } })
    }

    #[test]
    fn tables_of_stores_have_the_figures_of_the_record() {
        let record = stores_record().to_string();
        let first = first_table(&record).unwrap().unwrap();
        assert_eq!(first[0], "| 1,000 keys, `/dev/shm`, `process` | Bristlecone | redb |");
        assert_eq!((first.len(), first[2].as_str()), (7, "| put | **2,469** | 1,235 |"));
        let on_a_disk = first_table(&record.replace("/dev/shm", "target")).unwrap().unwrap();
        assert!(on_a_disk[0].starts_with("| 1,000 keys, a disk, "), "{}", on_a_disk[0]);
        let all = stores_table(&record).unwrap().unwrap();
        assert_eq!((all.len(), all[3].as_str()), (9, "| put, 8 | 2,469 | 1,235 (0.50) |"));
        assert_eq!(all[8], "| syncs per commit: put, 1 | 1.000 | not counted |");
        assert!(first_table("{}").unwrap().is_none() && stores_table("{}").unwrap().is_none());
        assert!(stores_table("no JSON").is_err());
    }

    #[test]
    fn a_row_of_ycsb_has_ratios_to_redis_with_the_same_durability() {
        let cell =
            |rate: u64, p99: f64| json!({ "per_second": rate, "p99_ms": { "INSERT": 9.0, "SCAN": p99 } });
        let row = json!({ "workload": "E", "process": cell(2_000, 1.0), "redis_none": cell(1_000, 2.0), "power": cell(500, 3.0),
            "redis_always": cell(1_000, 4.0) });
        let record = json!({ "figures": { "rows": [row] } }).to_string();
        let table = ycsb_table(&record).unwrap().unwrap();
        assert_eq!(table[2], "| E | 2.0 (2.00) | 1.0 | 0.5 (0.50) | 1.0 | scan | 1.0, 2.0, 3.0, 4.0 |");
        assert!(ycsb_table(&record.replace("redis_none", "other")).is_err());
    }

    #[test]
    fn a_record_that_lacks_a_figure_makes_no_table() {
        let mut record = stores_record();
        record["figures"]["rows"][0]["cells"][4] = Value::Null;
        assert!(first_table(&record.to_string()).unwrap_err().contains("redb"));
        assert!(stores_table(&record.to_string()).is_err());
        let mut record = stores_record();
        record["figures"]["columns"][3]["verb"] = json!("look");
        assert!(first_table(&record.to_string()).unwrap_err().contains("get"));
    }
}
