//! A process ends, and a second process opens its files on the same machine. It finds contents in the page cache that were never on the
//! disk. Later the power is cut. Writes that the second process acknowledged must survive, even if they depend on these contents.

use pmem::{Error, Journal, Medium};

use crate::life::{End, MAX_BYTES, Oracle, Step, program};
use crash::{Fault, Machine, Survivors, Which, by_tier, seeds};
use faults::{Images, mix};

/// Opens every image that a power cut can leave of this machine.
fn every_image_opens(
    machine: &Machine,
    oracle: &Oracle,
    case: u64,
    images: &mut Images,
) -> Result<(), String> {
    images.each(machine, case, |image| match oracle.clone().open(image) {
        Ok(_) => Ok(()),
        Err(end) => Err(format!("{end:?}")),
    })
}

/// How a life ends.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The process is killed at this change.
    Killed(u64),
    /// This call fails, and then the process ends.
    Failed(u64, Fault),
}

/// A life that ends this way. `None` if it ends by itself before.
fn live(seed: u64, way: Way, steps: &[Step]) -> Option<(Machine, Oracle)> {
    let machine = Machine::new(seed);
    match way {
        Way::Killed(change) => machine.cut_at(change),
        Way::Failed(call, fault) => machine.fail_at(call, fault),
    }
    let mut oracle = Oracle::new();
    let lived = oracle.live(&machine, steps);
    if let Err(End::Broken(what)) = &lived {
        panic!("seed {seed} {way:?}: {what}");
    }
    let ended = match way {
        Way::Killed(_) => machine.is_off(),
        Way::Failed(call, _) => machine.calls() >= call,
    };
    ended.then_some((machine, oracle))
}

/// Opens the files after the process has ended, continues, and cuts the power at every change of that. Returns the number of cuts.
fn cut_everywhere(
    machine: &Machine,
    oracle: &Oracle,
    more: &[Step],
    (name, case): (&str, u64),
    images: &mut Images,
) -> u64 {
    for cut in 1.. {
        let machine = machine.after_restart();
        machine.cut_at(cut);
        let mut oracle = oracle.clone();
        let lived = match oracle.open(&machine) {
            Ok(Some((journal, _))) => oracle.run(&journal, more),
            Ok(None) => return cut - 1,
            Err(end) => Err(end),
        };
        match lived {
            Err(End::Broken(what)) => panic!("{name} cut {cut}: {what}"),
            Err(End::Error(error)) if !machine.is_off() => panic!("{name} cut {cut}: {error}"),
            _ => {}
        }
        every_image_opens(&machine, &oracle, mix(case, cut), images)
            .unwrap_or_else(|what| panic!("{name} cut {cut}: {what}"));
        if !machine.is_off() {
            return cut - 1;
        }
    }
    unreachable!("the run ends")
}

fn sweep(seed: u64, way: impl Fn(u64) -> Way, images: &mut Images) -> (u64, u64) {
    let (steps, more) = (program(seed, 12), program(seed + 50, 2));
    let (mut lives, mut cuts) = (0, 0);
    while let Some((machine, oracle)) = live(seed, way(lives + 1), &steps) {
        lives += 1;
        let name = format!("seed {seed} {:?}", way(lives));
        cuts += cut_everywhere(&machine, &oracle, &more, (&name, mix(seed, lives)), images);
    }
    (lives, cuts)
}

#[test]
fn a_power_cut_anywhere_after_the_restart_of_a_killed_process_leaves_whole_groups() {
    let (mut lives, mut cuts, mut images) = (0, 0, Images::default());
    for seed in seeds(2, 6) {
        let (some, more) = sweep(seed, Way::Killed, &mut images);
        (lives, cuts) = (lives + some, cuts + more);
    }
    println!("killed, restarted, cut: {lives} lives, {cuts} cuts");
    images.require("killed, restarted, cut", by_tier(3_000, 10_000));
    assert!(lives > by_tier(60, 200) && cuts > by_tier(600, 2000));
}

#[test]
fn a_power_cut_anywhere_after_the_restart_of_a_failed_process_leaves_whole_groups() {
    let (mut lives, mut cuts, mut images) = (0, 0, Images::default());
    for seed in seeds(2, 4) {
        for fault in [Fault::Eio, Fault::ShortThenEio] {
            let (some, more) = sweep(seed, |call| Way::Failed(call, fault), &mut images);
            (lives, cuts) = (lives + some, cuts + more);
        }
    }
    println!("failed, restarted, cut: {lives} lives, {cuts} cuts");
    images.require("failed, restarted, cut", by_tier(2_500, 10_000));
    assert!(lives > by_tier(50, 200) && cuts > by_tier(500, 2000));
}

#[test]
fn groups_over_a_growth_that_was_never_synced_survive() {
    let (mut longer, mut images) = (0, Images::default());
    let steps = [Step::Grow, Step::Line(0), Step::Commit, Step::CheckpointAll, Step::Grow];
    for change in 1.. {
        let Some((machine, mut oracle)) = live(5, Way::Killed(change), &steps) else { break };
        let machine = machine.after_restart();
        if !oracle.created {
            continue;
        }
        let before = oracle.clone();
        let Some((journal, replay)) = oracle.open(&machine).unwrap() else { continue };
        longer += u64::from(before.grows() && replay.groups == 0 && oracle.length() > before.length());
        // No growth, because a growth would sync the file.
        oracle.run(&journal, &[Step::Line(0), Step::Commit]).unwrap();
        every_image_opens(&machine, &oracle, mix(5, change), &mut images).unwrap();
    }
    println!("{images:?}");
    assert!(longer > 0, "no kill met a growth before its sync");
}

#[test]
fn a_pair_whose_page_was_never_synced_is_a_store_once_it_was_opened() {
    let (mut unsynced, mut images) = (0, Images::default());
    let ways: [fn(u64) -> Way; 2] = [Way::Killed, |call| Way::Failed(call, Fault::Eio)];
    for (way, steps) in ways.into_iter().zip([&[][..], &[Step::Grow, Step::Line(0), Step::Commit]]) {
        for at in 1.. {
            let Some((machine, mut oracle)) = live(5, way(at), &[]) else { break };
            let machine = machine.after_restart();
            let Some((journal, _)) = oracle.open(&machine).unwrap() else { continue };
            unsynced += 1;
            oracle.run(&journal, steps).unwrap();
            every_image_opens(&machine, &oracle, mix(5, at), &mut images).unwrap();
        }
    }
    println!("{images:?}");
    assert!(unsynced > 1, "nothing left a page in the cache alone");
}

#[test]
fn a_power_cut_after_several_processes_that_ended_badly_leaves_whole_groups() {
    let (mut opened, mut images) = (0, Images::default());
    for seed in seeds(700, 2000) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let Some((mut machine, mut oracle)) = live(seed, Way::Killed(rng.u64(8..40)), &program(seed, 8))
        else {
            continue;
        };
        for life in 0..rng.u64(1..5) {
            machine = machine.after_restart();
            match rng.bool() {
                true => machine.cut_at(rng.u64(1..18)),
                false => machine.fail_at(rng.u64(1..28), Fault::Eio),
            }
            let lived = match oracle.open(&machine) {
                Ok(Some((journal, _))) => {
                    opened += 1;
                    oracle.run(&journal, &program(seed + life, 3))
                }
                Ok(None) => break,
                Err(end) => Err(end),
            };
            if let Err(End::Broken(what)) = lived {
                panic!("seed {seed} life {life}: {what}");
            }
        }
        every_image_opens(&machine, &oracle, mix(3, seed), &mut images)
            .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    println!("several processes: {opened} opened what another left");
    images.require("several processes", by_tier(1300, 4000));
    assert!(opened > by_tier(300, 1000));
}

/// A closed journal has no groups to find, so its halves are not read. The halves of a journal that was only checkpointed are read.
#[test]
fn a_closed_journal_takes_no_more_groups_and_is_opened_without_reading_its_halves() {
    // The faults: the second of the two header copies cannot be written, or cannot be synced.
    for (closed, fault) in [(true, None), (false, None), (true, Some(3)), (true, Some(4))] {
        let machine = Machine::new(11);
        let mut oracle = Oracle::new();
        let journal = oracle.create(&machine).unwrap();
        journal.grow(1 << 14).unwrap();
        journal.copy(64, 7);
        journal.commit().unwrap();
        journal.checkpoint_all().unwrap();
        if closed {
            if let Some(call) = fault {
                machine.fail_at(machine.calls() + call, Fault::Eio);
            }
            assert_eq!(journal.close().is_err(), fault.is_some());
            assert_eq!(journal.close().is_err(), fault.is_some(), "a second time");
            journal.copy(64, 8);
            assert!(matches!(journal.commit(), Err(Error::Failed)));
            assert!(matches!(journal.checkpoint_all(), Err(Error::Failed)));
        }
        drop(journal);
        // Damage to all of both halves.
        let mut damaged = machine.content(Which::Journal);
        damaged[8192..].fill(0xA5);
        let machine = Machine::with_files(machine.content(Which::Data), damaged);
        let calls = machine.calls();
        let (data, files) = (machine.storage(Which::Data), machine.storage(Which::Journal));
        let (journal, replay) = Journal::open_on(data, files, MAX_BYTES).unwrap();
        println!("closed {closed}: {} calls to open", machine.calls() - calls);
        assert_eq!((replay.groups, journal.word(64)), (0, 7));
        // After the next commit, an open searches the halves again.
        journal.copy(64, 9);
        journal.commit().unwrap();
        let machine = machine.after_power_cut(Survivors::None);
        let (data, files) = (machine.storage(Which::Data), machine.storage(Which::Journal));
        let (journal, replay) = Journal::open_on(data, files, MAX_BYTES).unwrap();
        assert_eq!((replay.groups, journal.word(64)), (1, 9));
    }
}

/// Power cuts at every change of a close. Committed writes are present, and so are writes after the next open.
#[test]
fn a_power_cut_anywhere_in_closing_and_in_opening_again_loses_nothing() {
    let (mut cuts, mut images) = (0, Images::default());
    for cut in 1.. {
        let machine = Machine::new(cut);
        let mut oracle = Oracle::new();
        let journal = oracle.create(&machine).unwrap();
        journal.grow(1 << 14).unwrap();
        journal.copy(64, 7);
        journal.commit().unwrap();
        let begun = machine.changes();
        machine.cut_at(begun + cut);
        let closed = journal.close();
        drop(journal);
        let open = |machine: &Machine| {
            let (data, files) = (machine.storage(Which::Data), machine.storage(Which::Journal));
            Journal::open_on(data, files, MAX_BYTES).map(|(journal, _)| journal)
        };
        let mut again = 7;
        if closed.is_ok()
            && let Ok(journal) = open(&machine)
        {
            journal.copy(64, 9);
            if journal.commit().is_ok() {
                again = 9;
            }
        }
        if !machine.is_off() {
            break;
        }
        cuts += 1;
        let judge = |image: &Machine| match open(image).map_err(|error| error.to_string())?.word(64) {
            found if found == again || found == 9 && closed.is_ok() => Ok(()),
            found => Err(format!("{found}, not {again}")),
        };
        images.each(&machine, mix(13, cut), judge).unwrap_or_else(|what| panic!("cut {cut}: {what}"));
    }
    println!("{cuts} cuts, {images:?}");
    assert!(cuts > 12);
}
