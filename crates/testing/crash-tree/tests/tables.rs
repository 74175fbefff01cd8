//! Crash exploration of tables and deadlines (`index::tables`) over `wbtree` and `cdds`: after a crash in any operation, all of its changes
//! are present or none is, every deadline has its entry, and the counts are exact.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bristlecone::registry;
use crash::{Contents, MutationReport, Share, Stage, Subject, Trial, Workload, by_tier, explore};
use index::engine::{Commit, Deadline, Next, TableOps as _, TableWrite};
use index::kind::Bytes;
use index::tables::{Clock, Table, Tables};
use index::{About, Create, Family, Form, Index, Lifecycle as _, Visitor, WriteOptions};
use pmem::{Durability, Geometry, Observed};

const SYNCED: WriteOptions = WriteOptions { sync: true };
/// No deadline of the workload has passed then.
const EARLY: u64 = 0;

/// One operation. Tables are named by letters; the default table has no letter.
#[derive(Clone, Debug)]
enum Op {
    Put(&'static str, u8, Deadline),
    Delete(&'static str, u8),
    Persist(&'static str, u8),
    Make(&'static str),
    Drop(&'static str),
    Clear(&'static str),
    Swap(&'static str, &'static str),
    /// Puts the key into one table and removes it from the other, in one step.
    Move(&'static str, &'static str, u8, Deadline),
    /// Removes the keys whose deadline has passed at this time.
    Expire(u64),
    /// Completes all background work.
    Maintain,
    Kill,
    Reopen,
    /// A fault on purpose: stores a value with a deadline before its entry.
    ValueFirst(u8, u64),
}

struct Tabled<I> {
    tables: RefCell<Option<Table>>,
    stored: RefCell<Option<Arc<dyn Index<Bytes>>>>,
    medium: Observed,
    lines: u64,
    now: Arc<AtomicU64>,
    index: PhantomData<fn() -> I>,
}

fn form(lines: u64) -> Form {
    let usual = Form::new("crash", lines, Durability::Power);
    Form { geometry: Some(Geometry::tiny()), stripes: 4, tables: true, ..usual }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl<I: Index<Bytes> + Create<Observed>> Tabled<I> {
    fn made(medium: Observed, lines: u64, is_new: bool) -> Result<Self, String> {
        let this = Self {
            tables: RefCell::new(None),
            stored: RefCell::new(None),
            medium,
            lines,
            now: Arc::new(AtomicU64::new(EARLY)),
            index: PhantomData,
        };
        this.open(is_new)?;
        Ok(this)
    }

    fn open(&self, is_new: bool) -> Result<(), String> {
        let form = form(self.lines);
        let (index, found) = match is_new {
            true => (I::create(self.medium.clone(), &form).map_err(text)?, pmem::Found::New),
            false => I::open(self.medium.clone(), Path::new("memory"), &form).map_err(text)?,
        };
        let (stored, now): (Arc<dyn Index<Bytes>>, _) = (Arc::new(index), Arc::clone(&self.now));
        let clock = Clock::new(move || now.load(Ordering::Relaxed));
        let tables = Tables::open(Arc::clone(&stored), found, clock).map_err(text)?;
        *self.tables.borrow_mut() = Some(tables.default_table());
        *self.stored.borrow_mut() = Some(stored);
        Ok(())
    }

    fn reopen(&self) -> Result<(), String> {
        *self.tables.borrow_mut() = None;
        *self.stored.borrow_mut() = None;
        self.open(false)
    }

    fn default_table(&self) -> Table {
        self.tables.borrow().clone().expect("it is open")
    }

    fn table(&self, name: &str) -> Result<Arc<dyn Index<Bytes>>, String> {
        self.default_table().table(name, false).map_err(text)?.ok_or_else(|| format!("no table {name:?}"))
    }

    fn maintain(&self) {
        // Deadlines that have not passed ask for another step for ever.
        for _ in 0..50 {
            if self.default_table().maintain().is_none_or(|pause| !pause.is_zero()) {
                return;
            }
        }
    }
}

fn key(number: u8) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

fn value(number: u8, deadline: Deadline) -> Vec<u8> {
    vec![number ^ deadline.unwrap_or(7) as u8; usize::from(number) * 3]
}

/// A pair in the contents that the explorer compares: table, key; value, deadline.
fn shown(table: &str, key: &[u8], value: &[u8], deadline: Deadline) -> (Vec<u8>, Vec<u8>) {
    let key = [table.as_bytes(), b"/", key].concat();
    (key, [value, format!("@{deadline:?}").as_bytes()].concat())
}

impl<I: Index<Bytes> + Create<Observed>> Subject for Tabled<I> {
    type Op = Op;
    type Config = u64;

    fn size(_lines: &u64) -> (u64, u64) {
        (0, 512 << 10)
    }

    fn create(medium: Observed, lines: &u64) -> Result<Self, String> {
        Self::made(medium, *lines, true)
    }

    fn recover(medium: Observed, lines: &u64) -> Result<Self, String> {
        Self::made(medium, *lines, false)
    }

    fn apply(&mut self, op: &Op) -> Result<(), String> {
        let default = self.default_table();
        let ops = |name: &str| self.table(name);
        match op {
            Op::Put(name, number, deadline) => {
                let table = ops(name)?;
                let (key, value) = (key(*number), value(*number, *deadline));
                let tables = table.tables().ok_or("no tables")?;
                match deadline {
                    None => table.put(&key, &value, SYNCED).map(drop),
                    Some(_) => tables.change(&key, &mut |_| Next::Put(value.clone(), *deadline), SYNCED),
                }
            }
            Op::Delete(name, number) => ops(name)?.delete(&key(*number), SYNCED).map(drop),
            Op::Persist(name, number) => {
                let table = ops(name)?;
                let decide = &mut |old: Option<(&[u8], Deadline)>| match old {
                    Some((value, Some(_))) => Next::Put(value.to_vec(), None),
                    _ => Next::Keep,
                };
                table.tables().ok_or("no tables")?.change(&key(*number), decide, SYNCED)
            }
            Op::Make(name) => default.table(name, true).map(drop),
            Op::Drop(name) => default.drop_table(name).map(drop),
            Op::Clear(name) => ops(name)?.clear(),
            Op::Swap(one, other) => default.swap(one, other).map(drop),
            Op::Move(from, to, number, deadline) => {
                let (from, to) = (ops(from)?, ops(to)?);
                let slot =
                    |table: &Arc<dyn Index<Bytes>>| Arc::clone(table.tables().expect("a table").slot());
                let next = Some((value(*number, *deadline), *deadline));
                let writes = vec![
                    TableWrite { table: slot(&to), key: key(*number), next },
                    TableWrite { table: slot(&from), key: key(*number), next: None },
                ];
                match default.commit_tables(Commit { writes, reads: &[], validate: None }, SYNCED) {
                    Ok(false) => return Err("a transaction without reads conflicted".to_owned()),
                    other => other.map(drop),
                }
            }
            Op::Expire(now) => {
                self.now.store(*now, Ordering::Relaxed);
                self.maintain();
                self.now.store(EARLY, Ordering::Relaxed);
                default.sync()
            }
            Op::Maintain => {
                self.maintain();
                default.sync()
            }
            Op::Kill => return self.reopen(),
            Op::Reopen => {
                default.close().map_err(text)?;
                return self.reopen();
            }
            Op::ValueFirst(number, deadline) => {
                let stored = Arc::clone(self.stored.borrow().as_ref().expect("it is open"));
                // The layout that docs/format.md describes.
                let stored_key = [&[1][..], &key(*number)].concat();
                let stored_value =
                    [&value(*number, Some(*deadline))[..], &deadline.to_le_bytes(), &[1]].concat();
                let entry = [&[0, 3][..], &deadline.to_be_bytes(), &stored_key].concat();
                stored.put(&stored_key, &stored_value, SYNCED).map_err(text)?;
                stored.put(&entry, &[], SYNCED).map(drop)
            }
        }
        .map_err(text)
    }

    fn is_divisible(op: &Op) -> bool {
        matches!(op, Op::Expire(_))
    }

    fn apply_model(op: &Op, model: &mut Contents) {
        let of = |model: &Contents, name: &str| -> Contents {
            let begins = [name.as_bytes(), b"/"].concat();
            model
                .iter()
                .filter(|(key, _)| key.starts_with(&begins))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect()
        };
        let renamed = |pairs: Contents, from: &str, to: &str| {
            pairs
                .into_iter()
                .map(|(key, value)| ([to.as_bytes(), &key[from.len()..]].concat(), value))
                .collect::<Contents>()
        };
        match op {
            Op::Put(name, number, deadline) => {
                model.extend([shown(name, &key(*number), &value(*number, *deadline), *deadline)]);
            }
            Op::ValueFirst(number, deadline) => {
                model.extend([shown("", &key(*number), &value(*number, Some(*deadline)), Some(*deadline))]);
            }
            Op::Delete(name, number) => _ = model.remove(&shown(name, &key(*number), &[], None).0),
            Op::Persist(name, number) => {
                if let Some(value) = model.get_mut(&shown(name, &key(*number), &[], None).0) {
                    let at =
                        value.iter().rposition(|byte| *byte == b'@').expect("every value has its deadline");
                    value.truncate(at);
                    value.extend(b"@None");
                }
            }
            Op::Drop(name) | Op::Clear(name) => {
                for key in of(model, name).keys() {
                    model.remove(key);
                }
            }
            Op::Swap(one, other) => {
                let (first, second) = (of(model, one), of(model, other));
                model.retain(|key, _| !first.contains_key(key) && !second.contains_key(key));
                model.extend(renamed(first, one, other));
                model.extend(renamed(second, other, one));
            }
            Op::Move(from, to, number, deadline) => {
                model.remove(&shown(from, &key(*number), &[], None).0);
                model.extend([shown(to, &key(*number), &value(*number, *deadline), *deadline)]);
            }
            Op::Expire(now) => model.retain(|_, value| {
                let text = String::from_utf8_lossy(value);
                let deadline =
                    text.rsplit_once("@Some(").and_then(|(_, rest)| rest.trim_end_matches(')').parse().ok());
                deadline.is_none_or(|deadline: u64| deadline > *now)
            }),
            Op::Make(_) | Op::Maintain | Op::Kill | Op::Reopen => {}
        }
    }

    fn verify(&self) -> Result<Contents, String> {
        let default = self.default_table();
        let report = default.check();
        if let Some(problem) = report.problems.first() {
            return Err(problem.clone());
        }
        default.count_all().map_err(text)?;
        let mut contents = BTreeMap::new();
        for (name, count) in default.list() {
            let table = self.table(&name)?;
            let (mut key, mut value, mut keys) = (Vec::new(), Vec::new(), 0);
            let mut cursor = table.cursor();
            cursor.walk(None).map_err(text)?;
            while cursor.next(&mut key, &mut value).map_err(text)? {
                let mut again = Vec::new();
                let deadline =
                    table.tables().ok_or("no tables")?.get_until(&key, &mut again).map_err(text)?;
                let deadline =
                    deadline.ok_or_else(|| format!("{key:?} of {name:?} is scanned and absent"))?;
                if again != value {
                    return Err(format!("{key:?} of {name:?} has two values"));
                }
                contents.extend([shown(&name, &key, &value, deadline)]);
                keys += 1;
            }
            if count.pending || count.keys != keys {
                return Err(format!("{name:?} counts {count:?} and has {keys} keys"));
            }
        }
        Ok(contents)
    }

    fn continuation(_op: &Op) -> Vec<Op> {
        vec![Op::Maintain, Op::Put("", 2, None), Op::Put("", 3, Some(9)), Op::Expire(9), Op::Kill]
    }

    fn idempotence_exempt(at: u64) -> bool {
        at < pmem::region::ROOT_AT
    }

    fn close(self) -> Result<(), String> {
        self.default_table().close().map_err(text)
    }
}

/// Every operation, in states where it has something to do.
fn life() -> Vec<Op> {
    vec![
        Op::Put("", 1, None),
        Op::Put("", 2, Some(5)),
        Op::Put("", 2, Some(8)),
        Op::Make("a"),
        Op::Put("a", 1, Some(5)),
        Op::Put("a", 4, None),
        Op::Persist("a", 1),
        Op::Move("a", "", 4, Some(6)),
        Op::Move("", "a", 2, None),
        Op::Reopen,
        Op::Swap("", "a"),
        Op::Kill,
        Op::Put("", 5, Some(3)),
        Op::Expire(4),
        Op::Clear(""),
        Op::Put("", 2, None),
        Op::Drop("a"),
        Op::Maintain,
        Op::Make("b"),
        Op::Delete("", 2),
        Op::Put("b", 9, Some(2)),
        Op::Reopen,
    ]
}

fn options() -> crash::Options {
    crash::Options {
        cap: by_tier(48, 4096),
        nested_cap: by_tier(4, 64),
        samples: by_tier(16, 256),
        ..crash::Options::default()
    }
}

/// Explores one engine.
struct Explore {
    ops: Vec<Op>,
}

impl Visitor for Explore {
    type Out = crash::Report;
    fn visit<F: Family>(self, about: &'static About) -> crash::Report {
        explore(
            &Workload::<Tabled<F::Bytes<Observed>>>::new(about.default_lines.min(8), self.ops),
            &options(),
        )
    }
}

fn explored(engine: &str, ops: Vec<Op>) -> crash::Report {
    registry::visit(engine, Explore { ops }).expect("an engine of the registry")
}

#[test]
fn a_crash_in_any_operation_of_tables_leaves_all_of_it_or_nothing() {
    for (engine, floor) in [("wbtree", 1500), ("cdds", 1000)] {
        let report = explored(engine, life());
        println!("{engine}: {} states and {} in recovery", report.images, report.nested_images);
        assert!(report.violations.is_empty(), "{engine}: {:?}", report.violations);
        assert!(report.images >= floor, "{engine}: {} states", report.images);
    }
}

#[test]
fn a_value_before_the_entry_of_its_deadline_is_found() {
    for engine in ["wbtree", "cdds"] {
        let report = explored(engine, vec![Op::Put("", 1, None), Op::ValueFirst(6, 5)]);
        let found = report.violations.first().expect("the fault is found");
        assert!(format!("{found:?}").contains("has no entry"), "{engine}: {found:?}");
    }
}

/// Mutants in these files may survive the workload of tables, because it is short. The engine's own workloads try them, too.
const TRIED_BY_THE_ENGINE: [&str; 11] = [
    "pmem/src/heap/alloc/allocator.rs",
    "pmem/src/heap/region.rs",
    "pmem/src/heap/log/redo.rs",
    "pmem/src/heap/log/truncate.rs",
    "pmem/src/heap/log/data_words.rs",
    "index/src/group.rs",
    "bptree/src/commit_protocol/write_atomic.rs",
    "cdds/src/insert.rs",
    "cdds/src/meta.rs",
    "cdds/src/node.rs",
    "cdds/src/versioned.rs",
];

/// Tries all mutants of one engine on the workload of tables.
struct Mutate;

impl Visitor for Mutate {
    type Out = MutationReport;
    fn visit<F: Family>(self, about: &'static About) -> MutationReport {
        let workload = Workload::<Tabled<F::Bytes<Observed>>>::new(about.default_lines.min(8), life());
        let trial = Trial::of("tables", options(), workload);
        crash::run_some_mutants(&[trial], &[], &Share::All, &[], |_| Stage::quiet())
    }
}

#[test]
fn the_fences_and_the_publish_that_commit_a_change_of_tables_are_needed() {
    use crash::Kind::{DropFence, EarlyPublish, SplitPublish};
    use pmem::Fence::{Commit, Payload};
    const WBTREE: &str = "bptree/src/commit_protocol/write_atomic.rs";
    let commits = [
        ("wbtree", 20, [(DropFence(Payload), WBTREE), (DropFence(Commit), WBTREE), (SplitPublish, WBTREE)]),
        (
            "cdds",
            28,
            [
                (DropFence(Payload), "cdds/src/versioned.rs"),
                (DropFence(Commit), "cdds/src/meta.rs"),
                (EarlyPublish, "cdds/src/meta.rs"),
            ],
        ),
    ];
    for (engine, floor, commit) in commits {
        let report = registry::visit(engine, Mutate).expect("an engine of the registry");
        println!("{engine}: {} mutants; {report}", report.found());
        report.killed.iter().for_each(|(mutant, _)| println!("  killed: {mutant}"));
        assert!(report.base.violations.is_empty() && report.left_out == 0, "{engine}: {report}");
        assert!(report.killed.len() >= floor, "{engine}: {report}");
        for (kind, file) in commit {
            let is_this = |mutant: &crash::Mutant| mutant.kind == kind && mutant.site.file().ends_with(file);
            let is_killed = report.killed.iter().any(|(mutant, _)| is_this(mutant));
            assert!(is_killed && !report.survived.iter().any(is_this), "{engine}: {kind:?} in {file}");
        }
        let is_excused = |mutant: &&crash::Mutant| {
            TRIED_BY_THE_ENGINE.iter().any(|file| mutant.site.file().ends_with(file))
        };
        let missed: Vec<_> = report.survived.iter().filter(|mutant| !is_excused(mutant)).collect();
        assert!(missed.is_empty(), "{engine}: {missed:?}");
    }
}
