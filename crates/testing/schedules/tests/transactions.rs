//! Transactions of whole stores in schedules. Three threads run transactions over two tables beside single writes, reads, clears, scans and
//! snapshots. The whole history must be strictly serializable ([`crash::serial`]): one order of all operations explains every result, and it
//! respects time. After a power cut at any moment, such an order explains the contents, too. So each transaction is there as a whole or not
//! at all, and every transaction that returned as durable is there.
//!
//! The stores are real ones, over a journal on a simulated disk. The scheduler may switch threads at each atomic, each lock and each call to
//! the disk. Single loads and stores of nodes are not switch points; the schedules of the engines cover these.
//!
//! Not every operation is one step. A transaction that did not commit may have read values of different moments, so it is not recorded. A
//! scan outside a transaction may see a single write and miss an earlier one, so each of its keys counts as a read of its own.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use bristlecone::{Error, Next, Options, Scan, Snapshot, Store, Transaction, WriteOptions, registry};
use crash::serial::{Action, Operation, Operations, State, judge};
use crash::{History, Machine, Which};
use index::kind::Bytes;
use pmem::journal::{Journal, Options as Sizes};
use pmem::omission::Omission;
use schedules::campaign::{Execution, How, LIES, Tally, Verdict, WHOLE, campaign, notice};
use schedules::disk::Cuts;
use schedules::medium::Points;
use schedules::scheduled::Numbered;
use shuttle::rand::RngCore;

/// Keys of a table are the numbers from 1 to this one.
const KEYS: u64 = 6;
/// The name of a table, and what its keys begin with in a history.
const TABLES: [(&str, u64); 2] = [("", 100), ("other", 200)];
const THREADS: u64 = 3;
/// Operations of a thread.
const STEPS: usize = 4;
/// Attempts of a transaction.
const ATTEMPTS: usize = 4;
/// The deadline of a key that does not expire in a test.
const FAR: u64 = u64::MAX / 2;
/// A small journal, so that some commits must checkpoint.
const SIZES: Sizes = Sizes { capacity_bytes: 64 << 10, max_bytes: 16 << 20 };

thread_local! {
    static ENGINE: Cell<&'static str> = const { Cell::new("") };
}

fn options() -> Options {
    let engine = ENGINE.get();
    let lines = registry::find(engine).unwrap().about.lines.0;
    Options::default().engine(engine).node_lines(lines).max_bytes(SIZES.max_bytes)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn key(n: u64) -> Vec<u8> {
    Vec::key(n)
}

/// The number of a key or of a value.
fn number(bytes: &Vec<u8>) -> u64 {
    bytes.number().expect("it is not torn")
}

fn pairs(table: usize, scan: Scan<'_, Bytes>) -> Result<Vec<(u64, u64)>, Error> {
    let of = |(key, value)| (TABLES[table].1 + number(&key), number(&value));
    scan.map(|pair| pair.map(of)).collect()
}

/// All pairs of a snapshot, by scans of both tables. Gets must agree.
fn shown(snapshot: &Snapshot<'_, Bytes>) -> Result<State, String> {
    let mut state = State::new();
    for (i, (name, first)) in TABLES.into_iter().enumerate() {
        let table = snapshot.table(name).map_err(text)?.ok_or("a table was not there")?;
        let found: State = pairs(i, table.scan(..)).map_err(text)?.into_iter().collect();
        for n in 1..=KEYS {
            let got = table.get(&key(n)).map_err(text)?.map(|value| number(&value));
            if got.as_ref() != found.get(&(first + n)) {
                return Err(format!(
                    "a snapshot has {got:?} under {n} of {name:?}, and a scan of it {found:?}"
                ));
            }
        }
        state.extend(found);
    }
    Ok(state)
}

/// A thread that uses the tables of a store.
struct Worker {
    tables: [Store; 2],
    clock: Arc<History>,
    operations: Arc<Operations>,
    random: fastrand::Rng,
    /// The next value. No two threads have the same values.
    next: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl Worker {
    fn any(&mut self) -> (usize, u64) {
        (self.random.usize(..2), self.random.u64(1..=KEYS))
    }

    /// A new value. `None` for a removal.
    fn any_value(&mut self) -> Option<u64> {
        self.next += 1;
        (self.random.u8(..4) > 0).then_some(self.next)
    }

    fn add(&self, called: u64, promises: bool, actions: Vec<Action>) {
        let returned = Some(self.clock.now());
        self.operations.add(Operation { called, returned, promises, actions });
    }

    /// Runs one operation.
    fn step(&mut self) -> Result<(), String> {
        let sync = self.random.u8(..3) > 0;
        match self.random.u8(..16) {
            0..9 => self.transaction(sync),
            9 => self.write(sync).map_err(text),
            10 => self.change(sync).map_err(text),
            11 => {
                let (table, n) = self.any();
                let called = self.clock.now();
                let value = self.tables[table].get(&key(n)).map_err(text)?;
                self.add(
                    called,
                    true,
                    vec![Action::Get(TABLES[table].1 + n, value.map(|value| number(&value)))],
                );
                Ok(())
            }
            12 => self.scan().map_err(text),
            13 => {
                let table = self.random.usize(..2);
                let (called, first) = (self.clock.now(), TABLES[table].1);
                self.tables[table].clear().map_err(text)?;
                self.add(called, true, vec![Action::Clear(first..first + 100)]);
                Ok(())
            }
            _ => self.snapshot(),
        }
    }

    /// A put or a delete.
    fn write(&mut self, sync: bool) -> Result<(), Error> {
        let ((table, n), value) = (self.any(), self.any_value());
        let (store, called) = (self.tables[table].with(WriteOptions { sync }), self.clock.now());
        let was_there = match value {
            Some(value) => store.put(&key(n), &Vec::value(value))?,
            None => store.delete(&key(n))?,
        };
        let n = TABLES[table].1 + n;
        self.add(called, sync, vec![Action::There(n, was_there), Action::Put(n, value)]);
        Ok(())
    }

    /// A read and a change of one key and its deadline.
    fn change(&mut self, sync: bool) -> Result<(), Error> {
        let ((table, n), value) = (self.any(), self.any_value());
        let deadline = self.random.bool().then_some(FAR);
        let (store, called) = (self.tables[table].with(WriteOptions { sync }), self.clock.now());
        let mut found = None;
        store.change_until(&key(n), |old| {
            found = old.map(|(value, _)| number(&value.to_vec()));
            value.map_or(Next::Delete, |value| Next::Put(Vec::value(value), deadline))
        })?;
        let n = TABLES[table].1 + n;
        self.add(called, sync, vec![Action::Get(n, found), Action::Put(n, value)]);
        Ok(())
    }

    /// A scan outside a transaction.
    fn scan(&mut self) -> Result<(), Error> {
        let table = self.random.usize(..2);
        let called = self.clock.now();
        let found: State = pairs(table, self.tables[table].scan(..))?.into_iter().collect();
        for n in TABLES[table].1 + 1..=TABLES[table].1 + KEYS {
            self.add(called, true, vec![Action::Get(n, found.get(&n).copied())]);
        }
        Ok(())
    }

    /// A snapshot of both tables. Its moment is before the return of the call that opens it; it is read later.
    fn snapshot(&mut self) -> Result<(), String> {
        let table = self.random.usize(..2);
        let (store, first) = (self.tables[table].clone(), TABLES[table].1);
        let called = self.clock.now();
        let snapshot = store.snapshot().map_err(text)?;
        let returned = Some(self.clock.now());
        let found = shown(&snapshot)?;
        let own = pairs(table, snapshot.scan(..)).map_err(text)?;
        if !found.range(first..first + 100).map(|(key, value)| (*key, *value)).eq(own.iter().copied()) {
            return Err(format!("a snapshot has {own:?}, and by the names of its tables {found:?}"));
        }
        let actions = vec![Action::Scan(0..u64::MAX, found.into_iter().collect())];
        self.operations.add(Operation { called, returned, promises: true, actions });
        *self.counts.entry("snapshots").or_default() += 1;
        Ok(())
    }

    /// A transaction of some reads, scans and writes. After a conflict it is tried again with other actions.
    fn transaction(&mut self, sync: bool) -> Result<(), String> {
        let store = self.tables[self.random.usize(..2)].with(WriteOptions { sync });
        for _ in 0..ATTEMPTS {
            let (called, mut actions) = (self.clock.now(), Vec::new());
            let mut transaction = Transaction::new(&store);
            for _ in 0..self.random.u8(1..5) {
                self.act(&mut transaction, &mut actions).map_err(text)?;
            }
            if transaction.commit().map_err(text)? {
                *self.counts.entry("commits").or_default() += 1;
                let scans = actions.iter().filter(|action| matches!(action, Action::Scan(..))).count() as u64;
                *self.counts.entry("validated scans").or_default() += scans;
                // What a transaction only reads is durable, whatever the options.
                let writes = actions.iter().any(|action| matches!(action, Action::Put(..)));
                self.add(called, sync || !writes, actions);
                return Ok(());
            }
            *self.counts.entry("conflicts").or_default() += 1;
        }
        Ok(())
    }

    /// An action of a transaction.
    fn act(&mut self, transaction: &mut Transaction<Bytes>, actions: &mut Vec<Action>) -> Result<(), Error> {
        let (number_of_table, n) = self.any();
        let first = TABLES[number_of_table].1;
        let mut table = transaction.table(&self.tables[number_of_table])?;
        match self.random.u8(..6) {
            0..2 => {
                let value = table.get(&key(n))?.map(|value| number(&value));
                actions.push(Action::Get(first + n, value));
            }
            2 => {
                // Sometimes the scan stops after some pairs. Then it has read the range up to the last one.
                let end = self.random.u64(n + 1..=KEYS + 1);
                let (descending, most) = (self.random.bool(), self.random.usize(1..5));
                let (mut found, mut range) = (Vec::new(), first + n..first + end);
                table.scan(key(n)..key(end), descending, |key, value| {
                    found.push((first + number(&key.to_vec()), number(&value.to_vec())));
                    found.len() < most
                })?;
                if let Some((last, _)) = found.last().filter(|_| found.len() == most) {
                    range = if descending { *last..range.end } else { range.start..last + 1 };
                }
                if descending {
                    found.reverse();
                }
                actions.push(Action::Scan(range, found));
            }
            _ => {
                let value = self.any_value();
                match value {
                    Some(value) => table.put(&key(n), &Vec::value(value))?,
                    None => table.delete(&key(n))?,
                }
                actions.push(Action::Put(first + n, value));
            }
        }
        Ok(())
    }
}

/// The contents of a store, if they are sound.
fn contents(store: &Store) -> Result<State, String> {
    let mut state = State::new();
    for (i, (name, _)) in TABLES.into_iter().enumerate() {
        let Some(table) = store.find_table(name).map_err(text)? else { return Err("a table is lost".into()) };
        let found = pairs(i, table.scan(..)).map_err(text)?;
        let count = table.count().map_err(text)?;
        if count != found.len() as u64 {
            return Err(format!("the table {name:?} counts {count} keys and has {found:?}"));
        }
        state.extend(found);
    }
    match store.check().map_err(text)?.problems.first() {
        Some(problem) => Err(format!("the store is damaged: {problem}")),
        None => Ok(state),
    }
}

fn judge_with(mut operations: Vec<Operation>, start: &State, now: u64, contents: &State) -> Verdict {
    operations.push(Operation::at_end(now, contents));
    let weight = judge(start.clone(), operations)?;
    Ok(Tally { operations: weight.operations, overlapping: weight.overlapping, ..Tally::default() })
}

/// One execution: three threads on a new store, and power cuts.
fn execute(how: How) -> Verdict {
    let mut random = fastrand::Rng::with_seed(shuttle::rand::thread_rng().next_u64());
    let (clock, points) = (Arc::new(History::default()), Arc::new(Points::default()));
    let operations = Arc::new(Operations::default());
    let machine = Machine::new(random.u64(..));
    let cuts = Cuts::new(&machine, &points, &clock, random.u64(..));
    let [data, journal] = [Which::Data, Which::Journal].map(|which| cuts.file(which));
    let journal = Journal::create_on(data, journal, [1, 2], &SIZES).map_err(text)?;
    let store = Store::open_over(journal, None, options()).map_err(text)?;
    let start = fill(&store, &mut random).map_err(text)?;

    points.switch(true);
    cuts.allow(how.cuts);
    machine.lie_about_syncs_of((!how.honest).then_some(Which::Journal));
    let threads = (0..THREADS).map(|thread| {
        let tables = TABLES.map(|(name, _)| store.table(name));
        let (clock, operations, random) = (clock.clone(), operations.clone(), random.fork());
        shuttle::thread::spawn(move || {
            let [one, other] = tables;
            let tables = [one.map_err(text)?, other.map_err(text)?];
            let (next, counts) = ((thread + 2) * 1000, BTreeMap::new());
            let mut worker = Worker { tables, clock, operations, random, next, counts };
            (0..STEPS).try_for_each(|_| worker.step())?;
            Ok(worker.counts)
        })
    });
    let threads: Vec<_> = threads.collect();
    // All threads end before the first failure is returned.
    let outcomes: Vec<Result<_, String>> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    points.switch(false);
    let mut tally = Tally { executions: 1, ..Tally::default() };
    for counts in outcomes.into_iter().collect::<Result<Vec<_>, _>>()? {
        tally.add(Tally { turnover: counts, ..Tally::default() });
    }
    store.commit().map_err(text)?;
    let found = contents(&store)?;
    if how.live {
        tally.add(judge_with(operations.all(), &start, clock.now(), &found)?);
    }
    drop(store);
    let mut ends = cuts.take();
    ends.push((clock.now(), machine.after_restart()));
    for (moment, machine) in ends {
        tally.cuts += 1;
        let after = || {
            let [data, journal] = [Which::Data, Which::Journal].map(|which| machine.storage(which));
            let (journal, replay) = Journal::open_on(data, journal, SIZES.max_bytes).map_err(text)?;
            let store = Store::open_over(journal, Some(replay), options()).map_err(text)?;
            judge_with(operations.until(moment), &start, moment, &contents(&store)?)
        };
        after().map_err(|why| format!("after a crash at {moment}: {why}"))?;
    }
    Ok(tally)
}

/// Fills a new store, one to four times, so that the journal is more or less full. Returns the contents.
fn fill(store: &Store, random: &mut fastrand::Rng) -> Result<State, Error> {
    let (has_deadlines, mut state) = (random.bool(), State::new());
    for _ in 0..random.u8(1..5) {
        for (name, first) in TABLES {
            let table = store.table(name)?.with(WriteOptions { sync: false });
            for n in (1..=KEYS).filter(|n| n % 3 != 0) {
                let deadline = Some(FAR).filter(|_| has_deadlines && n == 1);
                table.put_until(&key(n), &Vec::value(first + n), deadline)?;
                state.insert(first + n, first + n);
            }
        }
    }
    store.commit()?;
    Ok(state)
}

/// Durable engines with tables and batches that the scheduler can schedule. CDDS takes locks that it does not know.
fn engines() -> impl Iterator<Item = &'static str> {
    registry::names().filter(|name| {
        let can = registry::find(name).unwrap().capabilities;
        can.durable && can.ordered && can.atomic_batch && !can.versions
    })
}

const EXECUTION: Execution = execute;

#[test]
fn histories_of_transactions_are_strictly_serializable_and_a_power_cut_leaves_each_whole() {
    let mut scheduled = 0;
    for engine in engines() {
        ENGINE.set(engine);
        let tally = campaign(&format!("transactions, {engine}"), crash::by_tier(80, 1600), EXECUTION);
        for what in ["commits", "conflicts", "validated scans", "snapshots"] {
            assert!(tally.turnover[what] >= tally.executions / 10, "too few {what}: {tally:?}");
        }
        assert!(tally.cuts > 2 * tally.executions, "too few power cuts: {tally:?}");
        scheduled += 1;
    }
    assert!(scheduled >= 3, "{scheduled} engines");
}

#[test]
fn a_transaction_that_leaves_out_a_part_of_its_validation_is_noticed() {
    ENGINE.set(registry::DEFAULT);
    let omissions =
        [Omission::ReadValidation, Omission::ReadConditions, Omission::ScanValidation, Omission::ScanGate];
    let omissions = omissions.map(|omission| (Some(omission), WHOLE, "no order explains the history"));
    notice("transactions", EXECUTION, &omissions);
    notice("transactions", EXECUTION, &[(None, LIES, "after a crash")]);
}
