//! Tables of the records of the papers' experiments: costs, simulated memory, wB+-Tree, VLAB, CDDS, Bw-tree.

use serde_json::Value;

use super::{figures, grouped, line, number, rows};

/// The lines of a table, or `None` if the record has no figures for it.
type Made = Result<Option<Vec<String>>, String>;

/// The JSON values that the commands of a record printed.
struct Reports(Vec<Value>);

impl Reports {
    fn of(record: &str) -> Result<Self, String> {
        Ok(Self(match figures(record)? {
            Value::Array(several) => several,
            Value::Null => Vec::new(),
            only => vec![only],
        }))
    }

    /// The report of an experiment of `run`.
    fn experiment(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|report| report["experiment"] == name)
    }

    /// The first report that has a list of this name.
    fn with(&self, list: &str) -> Option<&Value> {
        self.0.iter().find(|report| report[list].is_array())
    }

    /// All rows with a member of this name.
    fn rows_with(&self, member: &str) -> Vec<&Value> {
        self.0.iter().flat_map(rows).filter(|row| !row[member].is_null()).collect()
    }

    /// The claims of all reports.
    fn claims(&self) -> Vec<&Value> {
        self.0.iter().flat_map(|report| report["claims"].as_array().into_iter().flatten()).collect()
    }
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}

/// The heads of the columns and the line below them. The head of the first column is a separate argument.
fn head(first: &str, columns: &[&str]) -> Vec<String> {
    vec![format!("| {first} | {} |", columns.join(" | ")), format!("|{}", "---|".repeat(columns.len() + 1))]
}

/// The lines of a table that has rows.
fn made(head: Vec<String>, rows: Vec<String>) -> Option<Vec<String>> {
    (!rows.is_empty()).then(|| head.into_iter().chain(rows).collect())
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

/// The distinct values of a row's member, in order of first occurrence.
fn distinct<'a>(rows: &[&'a Value], name: &str) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = Vec::new();
    for value in rows.iter().map(|row| &row[name]) {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn verdict(claim: &Value) -> String {
    if claim["holds"] == true { "yes" } else { "no" }.to_owned()
}

/// `costs`: means of words, flushes and fences of each engine's operations, in parentheses the paper's values.
pub fn costs_table(record: &str) -> Made {
    const OPERATIONS: [(&str, u64); 3] = [("insert", 0), ("insert-with-splits", 1), ("delete", 0)];
    let reports = Reports::of(record)?;
    let rows = reports.rows_with("split_levels");
    let cell = |engine: &Value, (operation, levels): (&str, u64)| {
        let found = rows.iter().find(|row| {
            row["engine"] == *engine && row["operation"] == operation && row["split_levels"] == levels
        });
        let Some(row) = found else { return Ok("-".to_owned()) };
        let metrics = ["words", "flushes", "fences"].map(|name| &row[name]);
        let means =
            metrics.map(|metric| number(&metric["measured"], "mean").map(|mean| format!("{mean:.2}")));
        let [words, flushes, fences] = means;
        let ours = format!("{} / {} / {}", words?, flushes?, fences?);
        let paper = metrics.map(|metric| metric["paper"].as_f64());
        Ok::<_, String>(match paper {
            [Some(words), Some(flushes), Some(fences)] => {
                format!("{ours} ({words:.2} / {flushes:.2} / {fences:.2})")
            }
            _ => ours,
        })
    };
    let mut lines = Vec::new();
    for engine in distinct(&rows, "engine") {
        let [insert, split, delete] = OPERATIONS.map(|operation| cell(engine, operation));
        lines.push(line(&code(engine.as_str().unwrap_or_default()), &[insert?, split?, delete?]));
    }
    let (mut operations, mut failures) = (0, 0);
    for report in reports.0.iter().filter(|report| report["failures"].is_u64()) {
        operations += report["operations"].as_u64().unwrap_or_default();
        failures += report["failures"].as_u64().unwrap_or_default();
    }
    let first = format!("{} operations, {failures} differ", grouped(operations));
    Ok(made(head(&first, &["insert", "insert with one split", "delete"]), lines))
}

/// `costs --by-category`: bytes that the indexes of VLAB's figure 6a write for each operation.
pub fn categories_table(record: &str) -> Made {
    const KINDS: [&str; 3] = ["entry", "structure", "consistency"];
    let reports = Reports::of(record)?;
    let Some(report) = reports.0.iter().find(|report| report["inserts"].is_u64()) else { return Ok(None) };
    let operations = number(report, "inserts")? + number(report, "deletes")?;
    let mut lines = Vec::new();
    for row in rows(report) {
        let bytes = KINDS.map(|kind| number(&row["bytes"], kind));
        let [entry, structure, consistency] = bytes;
        let (entry, structure, consistency) = (entry?, structure?, consistency?);
        let total = entry + structure + consistency;
        let each = |bytes: f64| format!("{:.1}", bytes / operations);
        let cells = [
            each(entry),
            each(structure),
            each(consistency),
            each(total),
            format!("{:.2}", number(row, "times_f")?),
            each(number(row, "bytes_changed")?),
            format!("{:.0} %", 100.0 * structure / total),
        ];
        lines.push(line(&format!("{}, `{}`", text(row, "index"), text(row, "tree")), &cells));
    }
    let columns =
        ["entry", "structure", "consistency", "total", "total over F's", "changed", "share of structure"];
    Ok(made(head("bytes for each operation", &columns), lines))
}

/// `wb-fig4`: cycles to write a line, without flush, flushed, and fenced after 1, 2, 4, 8 and 16 lines.
pub fn writes_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let Some(report) = reports.experiment("wb-fig4") else { return Ok(None) };
    let mut lines = Vec::new();
    for point in report["points"].as_array().into_iter().flatten() {
        let first = match &point["after"] {
            Value::String(kind) if kind == "nothing" => "not flushed".to_owned(),
            Value::String(_) => "flushed".to_owned(),
            after => match after["fence-every"].as_u64() {
                Some(1) => "flushed, a fence after each line".to_owned(),
                Some(lines) if lines.is_power_of_two() => format!("flushed, a fence after {lines} lines"),
                _ => continue,
            },
        };
        let cell = |name| number(point, name).map(|cycles| format!("{cycles:.0}"));
        lines.push(line(&first, &[cell("sequential")?, cell("random")?]));
    }
    Ok(made(head("cycles for each line", &["sequential", "random"]), lines))
}

/// `wb-fig12`: effects of an insert.
pub fn inserts_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let Some(report) = reports.experiment("wb-fig12") else { return Ok(None) };
    let mut lines = Vec::new();
    for row in rows(report) {
        let of = |name| number(row, name);
        let cycles = grouped(of("cycles")?.round() as u64);
        let cells = [
            format!("{cycles} ({:.2})", of("ratio")?),
            grouped(of("bits_new")?.round() as u64),
            format!("{:.1}", of("pj")? / 1000.0),
            format!("{:.1}", of("flushes")?),
            format!("{:.1}", of("fences")?),
            format!("{:.1}", of("line_reads")?),
            format!("{:.1}", of("line_writes")?),
        ];
        lines.push(line(&code(text(row, "tree")), &cells));
    }
    let first = format!("{} keys", grouped(number(report, "keys")? as u64));
    let columns = [
        "cycles (over `btree`'s)",
        "new bits",
        "energy, nJ",
        "flushes",
        "fences",
        "lines read",
        "lines written",
    ];
    Ok(made(head(&first, &columns), lines))
}

/// A claim's range of factors. The claim gives the number of decimals.
fn range(claim: &Value, name: &str) -> String {
    let decimals = claim["decimals"].as_u64().unwrap_or(1) as usize;
    let number = |at: usize| claim[name][at].as_f64().map(|number| format!("{number:.decimals$}"));
    match [number(0), number(1)] {
        [Some(least), Some(most)] if least == most => least,
        [Some(least), Some(most)] => format!("{least} to {most}"),
        [Some(least), None] => format!("at least {least}"),
        [None, Some(most)] => format!("at most {most}"),
        [None, None] => "no number".to_owned(),
    }
}

/// The claims about simulated memory.
pub fn simulated_claims_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let row = |claim: &&Value| {
        line(text(claim, "text"), &[range(claim, "paper"), range(claim, "ours"), verdict(claim)])
    };
    let lines = reports.claims().iter().filter(|claim| claim["text"].is_string()).map(row).collect();
    Ok(made(head("claim", &["paper", "here", "holds"]), lines))
}

/// `heat` of several trees: words that they store.
pub fn heat_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let mut lines = Vec::new();
    for report in &reports.0 {
        for row in rows(report).iter().filter(|row| row["node_most"].is_u64()) {
            let of = |name| number(row, name);
            let whole = |name| of(name).map(|number| grouped(number as u64));
            let mean = of("node_stores")? / of("nodes")?;
            let cells = [
                whole("node_lines")?,
                whole("nodes")?,
                whole("node_most")?,
                format!("{:.1}", of("node_most")? / mean),
                whole("stores")?,
                whole("writes")?,
                whole("cycles")?,
            ];
            let keys = grouped(number(report, "keys")? as u64);
            lines.push(line(&format!("{}, {keys} keys", code(text(row, "engine"))), &cells));
        }
    }
    let columns = [
        "lines of a node",
        "nodes",
        "words to the hottest node",
        "over the mean",
        "words stored",
        "lines written",
        "cycles",
    ];
    Ok(made(head("tree", &columns), lines))
}

/// `wb-fig13` and `wb-fig14`: the claims, with the paper's instructions and with the best ones.
pub fn measured_claims_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let mut lines = Vec::new();
    let mut first = String::new();
    for report in &reports.0 {
        let Some(figure) = text(report, "experiment").strip_prefix("wb-fig") else { continue };
        let claims: Vec<&Value> = report["claims"].as_array().into_iter().flatten().collect();
        let keys = grouped(number(report, "keys")? as u64);
        let rounds =
            if report["rounds"] == 1 { "1 round".to_owned() } else { format!("{} rounds", report["rounds"]) };
        first = format!("claim; {keys} keys, {rounds}");
        for said in distinct(&claims, "text") {
            let with = |instructions: &str| {
                claims.iter().find(|claim| claim["text"] == *said && claim["instructions"] == instructions)
            };
            let cell = |instructions| {
                with(instructions)
                    .map_or("-".to_owned(), |claim| format!("{}: {}", range(claim, "ours"), verdict(claim)))
            };
            let paper = with("paper").or(with("best")).map_or(String::new(), |claim| range(claim, "paper"));
            let name = format!("{figure}: {}", said.as_str().unwrap_or_default());
            lines.push(line(&name, &[paper, cell("paper"), cell("best")]));
        }
    }
    let columns = ["paper", "here, paper's instructions: holds", "here, best instructions: holds"];
    Ok(made(head(&first, &columns), lines))
}

/// The VLAB paper's workloads: words and nanoseconds for each operation of each index.
pub fn workloads_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let rows = reports.rows_with("workload");
    let trees = distinct(&rows, "tree");
    let mut done: Vec<(&str, u64)> = Vec::new();
    let mut lines = Vec::new();
    for row in rows.iter().filter(|row| row["ns"].is_f64()) {
        let at = (text(row, "workload"), row["entry_bytes"].as_u64().unwrap_or_default());
        if done.contains(&at) {
            continue;
        }
        done.push(at);
        let of = |tree: &Value| {
            let same = |row: &&&Value| {
                row["tree"] == *tree
                    && (text(row, "workload"), row["entry_bytes"].as_u64().unwrap_or_default()) == at
            };
            // Figure 17 repeats workloads of figure 15 with counts.
            let timed = rows.iter().filter(same).find(|row| row["ns"].is_f64());
            let counted = rows.iter().filter(same).find(|row| row["costs"].is_object());
            let ns =
                timed.map_or("-".to_owned(), |row| format!("{:.0}", row["ns"].as_f64().unwrap_or(f64::NAN)));
            match counted.and_then(|row| row["costs"]["words"].as_f64()) {
                Some(words) => format!("{words:.2}, {ns}"),
                None => ns,
            }
        };
        let cells: Vec<String> = trees.iter().map(|tree| of(tree)).collect();
        lines.push(line(&format!("{}, {} bytes", at.0, at.1), &cells));
    }
    let names: Vec<String> = trees.iter().map(|tree| code(tree.as_str().unwrap_or_default())).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(made(head("workload, entry", &names), lines))
}

/// `vlab-keys`: VLAB's time over that of `wb-4k`, by set of keys.
pub fn keys_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let Some(report) = reports.experiment("vlab-keys") else { return Ok(None) };
    let mut lines = Vec::new();
    for row in rows(report) {
        let [ratio, least, most] = [0, 1, 2].map(|at| row["ratio"][at].as_f64().unwrap_or(f64::NAN));
        let cells = [
            grouped(number(row, "keys")? as u64),
            format!("{ratio:.2} ({least:.2} to {most:.2})"),
            format!("{:.2}", row["comparisons"][0].as_f64().unwrap_or(f64::NAN)),
        ];
        lines.push(line(&format!("{}: {}", text(row, "set"), text(row, "about")), &cells));
    }
    Ok(made(head("set", &["keys", "ratio", "comparisons"]), lines))
}

/// `vlab-stalls`: times of inserts with and without a combine.
pub fn combine_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let Some(report) = reports.experiment("vlab-stalls") else { return Ok(None) };
    let mut lines = Vec::new();
    for row in report["times"].as_array().into_iter().flatten() {
        let us = |name| number(row, name).map(|ns| format!("{:.1}", ns / 1000.0));
        let cells = [grouped(number(row, "count")? as u64), us("p50_ns")?, us("p9999_ns")?, us("max_ns")?];
        lines.push(line(text(row, "inserts"), &cells));
    }
    let count = |value: &Value| grouped(value.as_u64().unwrap_or_default());
    let first = format!(
        "{} keys, {} buckets, {} combines",
        count(&report["keys"]),
        count(&report["buckets"][1]),
        count(&report["combines"])
    );
    let columns = ["inserts", "median, us", "99.99 %, us", "maximum, us"];
    Ok(made(head(&first, &columns), lines))
}

/// `bench cdds`: pairs per second of each store and mode.
pub fn cdds_table(record: &str) -> Made {
    const OPERATIONS: [&str; 3] = ["put", "get", "delete"];
    let reports = Reports::of(record)?;
    let Some(report) = reports.with("prices") else { return Ok(None) };
    let mut lines = Vec::new();
    for row in rows(report) {
        let cells =
            OPERATIONS.map(|name| number(&row["rate"], name).map(|rate| grouped(rate.round() as u64)));
        let [put, get, delete] = cells;
        lines.push(line(&format!("{}: {}", text(row, "name"), text(row, "setting")), &[put?, get?, delete?]));
    }
    let first = format!("{} pairs, operations per second", grouped(number(report, "pairs")? as u64));
    Ok(made(head(&first, &OPERATIONS), lines))
}

/// The claims that one number decides.
fn verdicts(claims: &[&Value]) -> Made {
    let row = |claim: &&Value| line(text(claim, "claim"), &[text(claim, "ours").to_owned(), verdict(claim)]);
    Ok(made(head("claim", &["here", "holds"]), claims.iter().map(row).collect()))
}

/// All claims of a record.
pub fn verdicts_table(record: &str) -> Made {
    verdicts(&Reports::of(record)?.claims())
}

/// The claims of one paper with a server: those of figures 5.5 to 5.7, or of figure 15.
fn server_verdicts(record: &str, list: &str) -> Made {
    let reports = Reports::of(record)?;
    let claims = reports.with(list).and_then(|report| report["claims"].as_array());
    verdicts(&claims.into_iter().flatten().collect::<Vec<_>>())
}

/// The thesis's claims about clusters.
pub fn cluster_verdicts_table(record: &str) -> Made {
    server_verdicts(record, "clusters")
}

/// The wB+-Tree paper's claims about memcached.
pub fn memcached_verdicts_table(record: &str) -> Made {
    server_verdicts(record, "trees")
}

/// Loads of clusters: operations per second of each, in parentheses the ratio to the last one.
fn cells_table(record: &str, list: &str) -> Made {
    let reports = Reports::of(record)?;
    let rows: Vec<&Value> =
        reports.with(list).and_then(|report| report[list].as_array()).into_iter().flatten().collect();
    let cells = |row: &Value| row["cells"].as_array().cloned().unwrap_or_default();
    let Some(first) = rows.first() else { return Ok(None) };
    let cluster = |cell: &Value| match text(cell, "name") {
        name if name.starts_with(char::is_uppercase) || name == "memcached" => name.to_owned(),
        engine => code(engine),
    };
    let names: Vec<String> = cells(first).iter().map(cluster).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut lines = Vec::new();
    for row in &rows {
        let cell = |cell: &Value| -> Result<String, String> {
            Ok(format!("{} ({:.2})", grouped(number(cell, "per_second")? as u64), number(cell, "ratio")?))
        };
        let cells = cells(row).iter().map(cell).collect::<Result<Vec<_>, _>>()?;
        lines.push(line(text(row, "load"), &cells));
    }
    Ok(made(head("operations per second", &names), lines))
}

/// Clusters with Redis's protocol.
pub fn clusters_table(record: &str) -> Made {
    cells_table(record, "clusters")
}

/// Clusters with memcached's protocol.
pub fn items_table(record: &str) -> Made {
    cells_table(record, "items")
}

/// Trees in the server of memcached's protocol: thousands of inserts and searches per second, in parentheses the ratio to memcached.
pub fn memcached_trees_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let rows = reports.with("trees").and_then(|report| report["trees"].as_array());
    let mut lines = Vec::new();
    for row in rows.into_iter().flatten() {
        let cell = |rate: &str, ratio: &str| -> Result<String, String> {
            Ok(format!("{:.1} ({:.2})", number(row, rate)? / 1000.0, number(row, ratio)?))
        };
        let cells = [cell("sets", "sets_ratio")?, cell("gets", "gets_ratio")?];
        lines.push(line(&code(text(row, "tree")), &cells));
    }
    Ok(made(head("thousands per second", &["inserts", "searches"]), lines))
}

/// The paper's claims of a record, and the targets that are missed.
pub fn paper_verdicts_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let mut claims = reports.claims();
    claims.retain(|claim| text(claim, "claim").starts_with("paper") || claim["holds"] == false);
    verdicts(&claims)
}

/// `bench bwtree`: million operations per second of each map.
pub fn rates_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let Some(report) = reports.with("maps") else { return Ok(None) };
    let names: Vec<&str> =
        report["maps"].as_array().into_iter().flatten().filter_map(|map| map[0].as_str()).collect();
    let mut lines = Vec::new();
    for row in rows(report) {
        let rate = |name: &&str| {
            row["rate"][*name].as_f64().map_or("-".to_owned(), |rate| format!("{:.2}", rate / 1e6))
        };
        let cells: Vec<String> = names.iter().map(rate).collect();
        let part = match text(row, "part") {
            "all" => String::new(),
            part => format!(" {part}"),
        };
        let threads = row["threads"].as_u64().unwrap_or_default();
        let threads = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        lines.push(line(&format!("{}{part}, {threads}", text(row, "workload")), &cells));
    }
    // Other work on the machine lowers the rates of several threads. This figure shows by how much.
    let scaling = report["machine"].as_array().into_iter().flatten().map(|of| {
        let times = of["times"].as_f64().unwrap_or(f64::NAN);
        format!("; {} independent threads do {times:.2} times the arithmetic of one", of["threads"])
    });
    let first = format!("million operations per second{}", scaling.collect::<String>());
    Ok(made(head(&first, &names), lines))
}

/// `bench bwtree --larger`: our tree with one thread and with two, on both sizes of the workloads.
pub fn threads_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let Some(report) = reports.with("own") else { return Ok(None) };
    let rate = |rows: &str, workload: &str, part: &str, threads: u64| {
        let of = |row: &&Value| {
            (text(row, "workload"), text(row, "part"), row["threads"].as_u64())
                == (workload, part, Some(threads))
        };
        let row = report[rows].as_array().into_iter().flatten().find(of);
        row.and_then(|row| row["rate"]["bwtree"].as_f64()).unwrap_or(f64::NAN)
    };
    let mut lines = Vec::new();
    let own = report["own"].as_array().into_iter().flatten();
    for (workload, part) in
        own.filter(|row| row["threads"] == 1).map(|row| (text(row, "workload"), text(row, "part")))
    {
        let [one, two] = [1, 2].map(|threads| rate("own", workload, part, threads));
        let before = rate("rows", workload, part, 2) / rate("rows", workload, part, 1);
        let cells = [one / 1e6, two / 1e6, two / one, before].map(|cell| format!("{cell:.2}"));
        let name = if part == "all" { workload.to_owned() } else { format!("{workload} {part}") };
        lines.push(line(&name, &cells));
    }
    let first = format!(
        "million operations per second, workloads {} times as large, median of {} rounds",
        report["larger"], report["own_rounds"]
    );
    let above = format!("ratio on the workloads above, rounds: {}", report["rounds"]);
    Ok(made(head(&first, &["1 thread", "2 threads", "ratio", &above]), lines))
}

/// `bench bwtree --caches`: loads of a lookup by the cache level that serves them.
pub fn loads_table(record: &str) -> Made {
    let reports = Reports::of(record)?;
    let Some(report) = reports.with("maps") else { return Ok(None) };
    let mut lines = Vec::new();
    for row in report["loads"].as_array().into_iter().flatten() {
        let each = [0, 1, 2, 3].map(|level| row["each"][level].as_f64().unwrap_or(f64::NAN));
        let near = 100.0 * (each[0] + each[1]) / each.iter().sum::<f64>();
        let mut cells = each.map(|loads| format!("{loads:.1}")).to_vec();
        cells.push(format!("{near:.1} %"));
        lines.push(line(text(row, "map"), &cells));
    }
    let columns = ["first level", "second", "third", "memory", "first two"];
    Ok(made(head("loads of a lookup", &columns), lines))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The table that a function makes from these reports.
    fn table(make: fn(&str) -> Made, reports: Value) -> Vec<String> {
        make(&json!({ "figures": reports }).to_string()).unwrap().unwrap()
    }

    fn metric(mean: f64, paper: Option<f64>) -> Value {
        json!({ "measured": { "mean": mean, "min": 1, "max": 9 }, "paper": paper })
    }

    #[test]
    fn costs_have_the_papers_values_beside_them_where_the_paper_has_some() {
        let row = |operation: &str, levels: u64, paper| {
            json!({
                "engine": "wbtree", "operation": operation, "split_levels": levels,
                "words": metric(7.125, paper), "flushes": metric(4.0, paper), "fences": metric(3.0, paper),
            })
        };
        let rows = [row("insert", 0, Some(6.5)), row("insert-with-splits", 2, None), row("delete", 0, None)];
        let made = table(costs_table, json!([{ "rows": rows, "operations": 1200, "failures": 0 }]));
        assert_eq!(made[0], "| 1,200 operations, 0 differ | insert | insert with one split | delete |");
        assert_eq!(
            made[2],
            "| `wbtree` | 7.12 / 4.00 / 3.00 (6.50 / 6.50 / 6.50) | - | 7.12 / 4.00 / 3.00 |"
        );
        assert!(costs_table("{}").unwrap().is_none());
        let broken =
            json!({ "figures": [{ "rows": [{ "engine": "a", "operation": "insert", "split_levels": 0 }] }] });
        assert!(costs_table(&broken.to_string()).unwrap_err().contains("mean"));
    }

    #[test]
    fn bytes_of_categories_are_divided_by_the_operations() {
        let row = json!({
            "index": "F", "tree": "bmp-all-4k", "times_f": 1.0, "bytes_changed": 100,
            "bytes": { "entry": 60, "structure": 30, "consistency": 30 },
        });
        let made =
            table(categories_table, json!([{ "rows": [] }, { "inserts": 6, "deletes": 4, "rows": [row] }]));
        assert_eq!(made[2], "| F, `bmp-all-4k` | 6.0 | 3.0 | 3.0 | 12.0 | 1.00 | 10.0 | 25 % |");
    }

    #[test]
    fn claims_of_a_figure_have_both_kinds_of_instructions_in_one_row() {
        let claim = |instructions: &str, most: f64, holds: bool| {
            json!({
                "text": "slower", "instructions": instructions, "paper": [null, 1.2], "ours": [1.0, most], "decimals": 1, "holds": holds,
            })
        };
        let claims = [claim("paper", 1.15, true), claim("best", 1.0, false)];
        let reports = json!([{ "experiment": "wb-fig13", "keys": 1000, "rounds": 3, "claims": claims }]);
        let made = table(measured_claims_table, reports.clone());
        assert_eq!(made[0].split(" | ").next(), Some("| claim; 1,000 keys, 3 rounds"));
        assert_eq!(made[2], "| 13: slower | at most 1.2 | 1.0 to 1.1: yes | 1.0: no |");
        assert_eq!(table(simulated_claims_table, reports)[2], "| slower | at most 1.2 | 1.0 to 1.1 | yes |");
    }

    #[test]
    fn a_workload_has_one_row_with_words_where_they_were_counted() {
        let row = |workload: &str, tree: &str, ns: Option<f64>, words: Option<f64>| {
            let costs = words.map(|words| json!({ "words": words }));
            json!({ "workload": workload, "tree": tree, "entry_bytes": 128, "ns": ns, "costs": costs })
        };
        let rows = [
            row("Load", "vlab", Some(10.4), None),
            row("Load", "wb-4k", Some(20.0), None),
            row("Load", "vlab", None, Some(3.0)),
        ];
        let made = table(workloads_table, json!([{ "rows": rows }]));
        assert_eq!(made[0], "| workload, entry | `vlab` | `wb-4k` |");
        assert_eq!(made[2..], ["| Load, 128 bytes | 3.00, 10 | 20 |"]);
    }

    #[test]
    fn claims_of_the_bwtree_are_the_papers_and_the_missed_targets() {
        let claim = |claim: &str, holds: bool| json!({ "claim": claim, "ours": "2", "holds": holds });
        let claims = [claim("paper: 1", true), claim("target", true), claim("other target", false)];
        let made = table(paper_verdicts_table, json!({ "claims": claims }));
        assert_eq!(made[2..], ["| paper: 1 | 2 | yes |", "| other target | 2 | no |"]);
    }

    #[test]
    fn two_threads_are_compared_with_one_on_both_sizes() {
        let row = |threads: u64, rate: f64| json!({ "workload": "uniform", "part": "inserts", "threads": threads, "rate": { "bwtree": rate } });
        let (rows, own) = ([row(1, 4e6), row(2, 6e6)], [row(1, 2e6), row(2, 3.8e6)]);
        let made = table(
            threads_table,
            json!([{ "larger": 10, "own_rounds": 3, "rounds": 1, "rows": rows, "own": own }]),
        );
        assert!(
            made[0].contains("workloads 10 times as large, median of 3 rounds | 1 thread"),
            "{}",
            made[0]
        );
        assert_eq!(made[2..], ["| uniform inserts | 2.00 | 3.80 | 1.90 | 1.50 |"]);
    }

    #[test]
    fn fences_after_powers_of_two_are_shown() {
        let point = |after: Value| json!({ "after": after, "sequential": 1.6, "random": 2.0 });
        let points =
            [point(json!("nothing")), point(json!({ "fence-every": 1 })), point(json!({ "fence-every": 3 }))];
        let made = table(writes_table, json!([{ "experiment": "wb-fig4", "points": points }]));
        assert_eq!(made[2..], ["| not flushed | 2 | 2 |", "| flushed, a fence after each line | 2 | 2 |"]);
    }
}
