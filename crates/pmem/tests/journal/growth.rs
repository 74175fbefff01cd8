//! The data file grows by more than the region asks for, so that not every growth costs a sync. Committed lengths and words are present
//! after every power cut. A disk that has only the needed space is enough.

use pmem::journal::Options;
use pmem::{Error, Journal, Medium};

use crash::{Fault, Machine, Survivors, Which, by_tier};

use crate::life::ID;

const STEP: u64 = 64 << 10;
const BYTES: u64 = 6 << 20;
const OPTIONS: Options = Options { capacity_bytes: 64 << 10, max_bytes: BYTES };

fn create(machine: &Machine) -> Result<Journal, Error> {
    Journal::create_on(machine.storage(Which::Data), machine.storage(Which::Journal), ID, &OPTIONS)
}

/// Grows step by step up to `OPTIONS.max_bytes`, stores a word at the end of each step and commits. `committed` is the newest length with
/// an acknowledged commit.
fn grow(journal: &Journal, committed: &mut u64) -> Result<(), Error> {
    while journal.len() < BYTES {
        journal.grow((journal.len() + STEP).min(BYTES))?;
        journal.copy(journal.len() - 8, journal.len());
        journal.commit()?;
        *committed = journal.len();
        journal.checkpoint()?;
    }
    Ok(())
}

/// Checks the words that `grow` stored up to a length.
fn holds(journal: &Journal, committed: u64) -> Result<(), String> {
    if journal.len() < committed {
        return Err(format!("{} bytes, {committed} were committed", journal.len()));
    }
    match (STEP..=committed).step_by(STEP as usize).find(|end| journal.word(end - 8) != *end) {
        Some(end) => Err(format!("the word before {end} is {}", journal.word(end - 8))),
        None => Ok(()),
    }
}

#[test]
fn few_growths_of_a_large_region_sync_and_the_file_never_gets_longer_than_the_region_may_be() {
    let machine = Machine::new(1);
    let journal = create(&machine).unwrap();
    let (mut dear, mut longest) = (0, 0);
    while journal.len() < BYTES {
        let changes = machine.changes();
        journal.grow(journal.len() + STEP).unwrap();
        let bytes = machine.content(Which::Data).len() as u64;
        dear += u64::from(bytes != longest);
        assert_eq!(
            machine.changes() > changes,
            bytes != longest,
            "a growth that finds space changes nothing"
        );
        longest = bytes;
    }
    assert_eq!(longest, BYTES + 4096);
    // Up to 1 MiB every growth changes the file. Then the file doubles.
    let (small, steps) = ((1 << 20) / STEP, BYTES / STEP);
    assert!((small..small + 5).contains(&dear), "{dear} of {steps} growths changed the file");
    assert!(matches!(journal.grow(BYTES + 4096), Err(Error::Full { .. })));
}

#[test]
fn a_power_cut_anywhere_leaves_every_committed_length_and_word() {
    let (mut cuts, mut growths) = (0, 0);
    for cut in (1..).step_by(by_tier(7, 3)) {
        let machine = Machine::new(cut);
        machine.cut_at(cut);
        let mut committed = 0;
        let lived = create(&machine).and_then(|journal| grow(&journal, &mut committed));
        if lived.is_ok() && !machine.is_off() {
            break;
        }
        cuts += 1;
        growths = growths.max(committed / STEP);
        for survivors in [Survivors::None, Survivors::All, Survivors::Random(cut)] {
            let machine = machine.after_power_cut(survivors);
            let (data, journal) = (machine.storage(Which::Data), machine.storage(Which::Journal));
            match Journal::open_on(data, journal, BYTES) {
                Ok((journal, _)) => {
                    holds(&journal, committed)
                        .unwrap_or_else(|what| panic!("cut {cut} {survivors:?}: {what}"));
                    let mut committed = journal.len();
                    grow(&journal, &mut committed).unwrap();
                    assert_eq!(committed, BYTES, "cut {cut} {survivors:?}");
                }
                Err(error) => assert_eq!(committed, 0, "cut {cut} {survivors:?}: {error}"),
            }
        }
    }
    println!("{cuts} cuts, the last after {growths} growths");
    assert!(cuts > by_tier(25, 60) && growths > BYTES / STEP / 2);
}

/// A growth that fails half way may leave a longer file than the journal knows of.
#[test]
fn a_failure_anywhere_and_a_power_cut_behind_it_leave_every_committed_length_and_word() {
    let (mut failed, mut went_on) = (0, 0);
    for (fault, call) in
        (4..).step_by(by_tier(13, 5)).flat_map(|call| [(Fault::Eio, call), (Fault::NoSpace, call)])
    {
        let machine = Machine::new(call);
        machine.fail_at(call, fault);
        let mut committed = 0;
        let Ok(journal) = create(&machine) else { continue };
        if grow(&journal, &mut committed).is_ok() {
            if machine.calls() < call {
                break;
            }
            continue;
        }
        failed += 1;
        // After a lack of space, growths work again once there is space. After any other failure nothing more is written.
        let done = journal.len() == BYTES;
        let again = grow(&journal, &mut committed);
        assert_eq!(again.is_ok(), done || !journal.has_failed(), "{fault:?} at {call}: {again:?}");
        went_on += u64::from(again.is_ok());
        drop(journal);
        for survivors in [Survivors::None, Survivors::All, Survivors::Random(call)] {
            let machine = machine.after_power_cut(survivors);
            let (data, journal) = (machine.storage(Which::Data), machine.storage(Which::Journal));
            let (journal, _) = Journal::open_on(data, journal, BYTES).unwrap();
            holds(&journal, committed)
                .unwrap_or_else(|what| panic!("{fault:?} at {call} {survivors:?}: {what}"));
            let mut committed = journal.len();
            grow(&journal, &mut committed).unwrap();
            assert_eq!(committed, BYTES);
        }
    }
    println!("{failed} failures, after {went_on} it went on");
    assert!(failed > by_tier(8, 20) && went_on > 0);
}

#[test]
fn a_disk_without_space_for_more_than_is_needed_is_enough() {
    // Grows to one step below 1 MiB. `calls` is the number of calls for that.
    let small = |machine: &Machine| {
        let journal = create(machine).unwrap();
        journal.grow((1 << 20) - STEP).unwrap();
        journal
    };
    let machine = Machine::new(3);
    let _ = small(&machine);
    let calls = machine.calls();
    let mut refused = 0;
    for call in calls + 1..calls + 4 {
        let machine = Machine::new(3);
        let journal = small(&machine);
        machine.fail_at(call, Fault::NoSpace);
        let before = machine.content(Which::Data).len();
        match journal.grow(1 << 20) {
            Ok(()) if machine.faults() == 1 => {
                refused += 1;
                assert_eq!(machine.content(Which::Data).len(), before + STEP as usize, "call {call}");
                journal.commit().unwrap();
            }
            // Not the call that allocates, or no fault.
            outcome => assert_eq!(u64::from(outcome.is_err()), machine.faults(), "call {call}"),
        }
    }
    assert_eq!(refused, 1);
}
