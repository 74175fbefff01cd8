//! Injected faults: each sync call in the journal's source is left out in turn, and some crash must then violate a
//! guarantee (except for one equivalent mutant).
//!
//! A life is a sequence of groups and a close. It ends in one of two ways. A power cut ends it, and the test opens the contents of the
//! disk. Or the process is killed or one of its calls fails, and the page cache stays. Then a second life opens the files, continues, and
//! ends by a power cut. Second lives are needed: only there does recovery read contents of the page cache that are not durable yet. Failed
//! calls are needed, too: if a sync failed, a later sync does not make the same contents durable, so recovery must write them again.

use std::collections::BTreeSet;

use pmem::observed::Site;

use crate::life::{End, Oracle, Outcome, Step, program, with_discards};
use crash::{Fault, Machine, Survivors, Which};

/// Minimum number of call sites: make 2, header 3, commit 2, growth 1, home 1, recovery 1.
const SITES: usize = 10;
/// Maximum number of programs for each call that is left out.
const SEEDS: u64 = 4;
/// Number of random images of one crash.
const SAMPLES: u64 = 6;
/// Number of first changes of a recovery, each with a power cut. After them every fourth change has one.
const RECOVERY: u64 = 14;

/// The equivalent mutant: the sync without which nothing breaks here, by its line, with the reason.
const EQUIVALENT: [(&str, &str); 1] = [(
    "files.write(&files.journal, COPIES[self.newest], &self.encode())?;",
    "H1: where sectors are written whole, as here, a header copy that was lost is its predecessor, not a torn one; by that header \
     the same groups are found, for none is appended before the next sync of the journal. It is for disks that tear a sector.",
)];
const HEADER: &str = include_str!("../../src/medium/journal/header.rs");

/// True if the line before the call is that of an equivalent mutant.
fn is_equivalent(site: Site) -> bool {
    let before = HEADER.lines().nth(site.line() as usize - 2);
    site.file().ends_with("journal/header.rs")
        && before.is_some_and(|line| EQUIVALENT.iter().any(|(text, _)| line.contains(text)))
}

/// The counts of all lives.
#[derive(Debug, Default)]
struct Tally {
    lives: u64,
    crashes: u64,
    sites: BTreeSet<Site>,
}

/// How the first of two lives ends, unless it ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The process is killed at this change.
    Killed(u64),
    /// This call fails, and then the process ends.
    Failed(u64),
}

/// Runs and closes. After an acknowledged close, both header copies are durable (H1).
fn to_the_end(machine: &Machine, oracle: &mut Oracle, steps: &[Step]) -> Outcome<bool> {
    let journal = match oracle.created.then(|| oracle.open(machine)).transpose()?.flatten() {
        Some((journal, _)) => journal,
        None => oracle.create(machine)?,
    };
    oracle.run(&journal, steps)?;
    journal.close()?;
    Ok(true)
}

fn ended(outcome: Outcome<bool>, machine: &Machine) -> Result<bool, String> {
    match outcome {
        Ok(closed) => Ok(closed),
        Err(End::Error(_)) if machine.is_off() || machine.faults() > 0 => Ok(false),
        Err(end) => Err(format!("{end:?}")),
    }
}

/// Checks that both copies of the header are equal on the disk.
fn verify_copies(machine: &Machine) -> Result<(), String> {
    let journal = machine.after_power_cut(Survivors::None).content(Which::Journal);
    if journal[..512] == journal[4096..4608] {
        return Ok(());
    }
    Err("the header copies differ after a close".to_owned())
}

/// Opens the files that a machine without power leaves. `case` selects what survives. With the same few patterns everywhere, the same
/// contents would be lost everywhere.
fn verify(machine: &Machine, oracle: &Oracle, case: [u64; 3], tally: &mut Tally) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(case.iter().fold(0, |seed, part| (seed << 20) ^ part));
    let random = (0..SAMPLES).map(|_| Survivors::Random(rng.u64(..)));
    for survivors in [Survivors::None, Survivors::All].into_iter().chain(random) {
        tally.crashes += 1;
        let machine = machine.after_power_cut(survivors);
        let opened = oracle.clone().open(&machine);
        tally.sites.extend(machine.sync_sites());
        opened.map_err(|end| format!("{survivors:?}: {end:?}"))?;
    }
    Ok(())
}

/// Groups that fill half after half without a checkpoint in between. A commit makes space and overwrites the former contents, without
/// another sync in between.
fn full_halves(seed: u64) -> Vec<Step> {
    let steps = program(seed, 40).into_iter();
    steps.filter(|step| !matches!(step, Step::Checkpoint | Step::CheckpointAll)).collect()
}

/// Lives with a power cut at each change.
fn one_life(seed: u64, steps: &[Step], left_out: Option<Site>, tally: &mut Tally) -> Result<(), String> {
    for cut in 1.. {
        let machine = Machine::new(seed);
        machine.cut_at(cut);
        machine.leave_out_syncs_at(left_out);
        let mut oracle = Oracle::new();
        tally.lives += 1;
        let name = |what| format!("seed {seed}, power cut at {cut}: {what}");
        let closed = ended(to_the_end(&machine, &mut oracle, steps), &machine).map_err(name)?;
        tally.sites.extend(machine.sync_sites());
        if closed {
            verify_copies(&machine).map_err(name)?;
        }
        verify(&machine, &oracle, [seed, cut, 0], tally).map_err(name)?;
        if !machine.is_off() {
            return Ok(());
        }
    }
    unreachable!("the run ends")
}

/// Two lives. The first one ends at every third change or call.
fn two_lives(seed: u64, left_out: Option<Site>, tally: &mut Tally) -> Result<(), String> {
    let (first, second) = (program(seed, 8), program(seed ^ 0xFF, 4));
    let mut at = 1 + seed % 3;
    loop {
        let mut whole = true;
        for way in [Way::Killed(at), Way::Failed(at)] {
            let machine = Machine::new(seed);
            match way {
                Way::Killed(change) => machine.cut_at(change),
                Way::Failed(call) => machine.fail_at(call, Fault::Eio),
            }
            machine.leave_out_syncs_at(left_out);
            let mut oracle = Oracle::new();
            tally.lives += 1;
            let name = |what| format!("seed {seed}, {way:?}, {what}");
            if ended(to_the_end(&machine, &mut oracle, &first), &machine).map_err(name)? {
                continue;
            }
            whole = false;
            if oracle.created {
                again(&machine, &oracle, [seed, at], &second, tally).map_err(name)?;
            }
        }
        if whole {
            return Ok(());
        }
        at += 3;
    }
}

/// Opens the files after the process has ended, continues, and cuts the power.
fn again(
    machine: &Machine,
    oracle: &Oracle,
    [seed, first]: [u64; 2],
    steps: &[Step],
    tally: &mut Tally,
) -> Result<(), String> {
    for cut in (1..RECOVERY).chain((RECOVERY..).step_by(4)) {
        let machine = machine.after_restart();
        machine.cut_at(cut);
        let mut oracle = oracle.clone();
        tally.lives += 1;
        let name = |what| format!("power cut at {cut} of the second life: {what}");
        let closed = ended(to_the_end(&machine, &mut oracle, steps), &machine).map_err(name)?;
        tally.sites.extend(machine.sync_sites());
        if closed {
            verify_copies(&machine).map_err(name)?;
        }
        verify(&machine, &oracle, [seed, first, cut], tally).map_err(name)?;
        if !machine.is_off() {
            return Ok(());
        }
    }
    unreachable!("the run ends")
}

/// Both kinds of lives, and one life with discards.
fn lives(seed: u64, left_out: Option<Site>, tally: &mut Tally) -> Result<(), String> {
    one_life(seed, &full_halves(seed), left_out, tally)?;
    one_life(seed, &with_discards(seed, 10), left_out, tally).and_then(|()| two_lives(seed, left_out, tally))
}

#[test]
fn no_sync_of_the_journal_can_be_left_out() {
    let mut tally = Tally::default();
    for seed in 0..SEEDS {
        lives(seed, None, &mut tally).unwrap_or_else(|what| panic!("nothing left out: {what}"));
    }
    println!("{} lives, {} crashes, {} sync sites", tally.lives, tally.crashes, tally.sites.len());
    assert!(tally.sites.len() >= SITES, "{:?}", tally.sites);
    let mut survived = Vec::new();
    for site in tally.sites.clone() {
        let caught = (0..SEEDS).find_map(|seed| lives(seed, Some(site), &mut tally).err());
        match caught {
            Some(what) => println!("without the sync at {site}: {what}"),
            None => survived.push(site),
        }
    }
    println!("{} lives, {} crashes with the mutants", tally.lives, tally.crashes);
    let (equivalent, survived): (Vec<Site>, Vec<Site>) =
        survived.into_iter().partition(|site| is_equivalent(site));
    assert!(survived.is_empty(), "nothing breaks without the syncs at {survived:?}");
    assert_eq!(equivalent.len(), EQUIVALENT.len(), "a reason that no sync needs: {EQUIVALENT:?}");
}
