//! Failing calls of the file system. In each run one call on the files fails, in one of the ways in which it can fail. The runs cover all
//! calls and all ways. Acknowledged writes survive a restart and a power cut, later writes are refused, and reads go on.

use std::time::Duration;

use pmem::{Error, Journal, Medium};

use crate::life::{End, Oracle, Step, program, several_sectors, with_discards};
use crash::{Fault, Machine, Survivors, by_tier, seeds};
use faults::{Images, mix};

const FAULTS: [Fault; 5] = [Fault::Eio, Fault::NoSpace, Fault::Short, Fault::ShortThenEio, Fault::Nothing];

#[derive(Debug, Default)]
struct Tally {
    hit: u64,
    went_on: u64,
    refused: u64,
    not_made: u64,
    recoveries: u64,
    images: Images,
}

/// Checks an open journal after a call has failed.
fn a_failed_journal_only_reads(
    journal: &Journal,
    machine: &Machine,
    oracle: &mut Oracle,
) -> Result<(), String> {
    let changes = machine.changes();
    oracle.compare(journal, "after the failure").map_err(|end| format!("{end:?}"))?;
    oracle.roll_back(journal);
    oracle.compare(journal, "rolled back").map_err(|end| format!("{end:?}"))?;
    if !journal.is_empty() {
        journal.publish(0, 1);
    }
    let refused = [
        journal.commit().map(|_| ()),
        journal.sync(0, 8),
        journal.grow(journal.len() + 4096),
        journal.checkpoint().map(|_| ()),
        journal.checkpoint_all(),
        journal.wait_until_due(Duration::from_secs(9)).map(|_| ()),
    ];
    journal.roll_back();
    if !refused.iter().all(|outcome| matches!(outcome, Err(Error::Failed))) {
        return Err(format!("not refused: {refused:?}"));
    }
    if machine.changes() != changes { Err("a file was changed after a failure".into()) } else { Ok(()) }
}

/// One life with one fault, then a restart and power cuts.
fn live_with(seed: u64, call: u64, fault: Fault, steps: &[Step], tally: &mut Tally) -> Result<bool, String> {
    let machine = Machine::new(seed);
    machine.fail_at(call, fault);
    let mut oracle = Oracle::new();
    let journal = match oracle.create(&machine) {
        Ok(journal) => Some(journal),
        Err(End::Error(_)) if machine.faults() > 0 => None,
        Err(end) => return Err(format!("making: {end:?}")),
    };
    if let Some(journal) = &journal {
        let (mut lived, mut at) = (oracle.run(journal, steps), 0);
        // Some failures change nothing, such as a refused growth. Then the program continues where it was.
        while let (Err(End::Error(error)), false) = (&lived, journal.has_failed()) {
            at += 1;
            if machine.fatal() > 0 {
                return Err(format!("a write or a sync failed, and more is taken: {error}"));
            }
            if at > 1 {
                return Err(format!("one fault, failed twice: {error}"));
            }
            tally.went_on += 1;
            oracle.forget_growth();
            lived = oracle.run(journal, steps);
        }
        match lived {
            Err(End::Broken(what)) => return Err(what),
            Err(End::Error(error)) if machine.faults() == 0 => return Err(format!("no fault: {error}")),
            Err(End::Error(_)) => {
                tally.refused += 1;
                a_failed_journal_only_reads(journal, &machine, &mut oracle)?;
            }
            Ok(()) if journal.has_failed() => return Err("failed, and nobody was told".into()),
            Ok(()) => {}
        }
    }
    let was_hit = machine.faults() > 0;
    tally.hit += u64::from(was_hit);
    let (case, mut images) = (mix(seed, mix(fault as u64, call)), std::mem::take(&mut tally.images));
    let mut judge = |image: &Machine| {
        let mut oracle = oracle.clone();
        match oracle.open(image) {
            Ok(Some((journal, _))) => {
                tally.recoveries += 1;
                let lived = oracle.run(&journal, &steps[..20.min(steps.len())]);
                lived.map_err(|end| format!("going on: {end:?}"))
            }
            Ok(None) => {
                tally.not_made += 1;
                Ok(())
            }
            Err(end) => Err(format!("opened: {end:?}")),
        }
    };
    judge(&machine.after_restart()).map_err(|what| format!("after a restart: {what}"))?;
    images.each(&machine, case, judge)?;
    tally.images = images;
    Ok(was_hit || machine.calls() >= call)
}

#[test]
fn every_call_that_fails_in_every_way_loses_nothing_acknowledged() {
    let mut tally = Tally::default();
    for seed in seeds(2, 5) {
        let steps = program(seed, 25);
        for fault in FAULTS {
            for call in 1.. {
                match live_with(seed, call, fault, &steps, &mut tally) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(what) => panic!("seed {seed} call {call} {fault:?}: {what}"),
                }
            }
        }
    }
    println!("faults: {tally:?}");
    tally.images.require("faults", by_tier(1000, 3000));
    assert!(
        tally.hit > by_tier(400, 1000)
            && tally.refused > by_tier(200, 500)
            && tally.went_on > 0
            && tally.not_made > 0,
        "{tally:?}"
    );
}

#[test]
fn every_punch_and_allocation_that_fails_loses_nothing_acknowledged() {
    let mut tally = Tally::default();
    let steps = with_discards(71, 12);
    for fault in [Fault::Eio, Fault::NoSpace] {
        for call in 1.. {
            match live_with(71, call, fault, &steps, &mut tally) {
                Ok(true) => {}
                Ok(false) => break,
                Err(what) => panic!("call {call} {fault:?}: {what}"),
            }
        }
    }
    println!("faults of discards: {tally:?}");
    assert!(tally.went_on > by_tier(4, 4) && tally.refused > 20, "{tally:?}");
}

#[test]
fn every_call_that_fails_during_recovery_leaves_it_to_the_next_one() {
    let (mut hit, mut recoveries, mut images) = (0, 0, Images::default());
    for seed in 0..8 {
        let machine = Machine::new(seed);
        let mut oracle = Oracle::new();
        oracle.live(&machine, &[program(seed, 20), several_sectors()].concat()).unwrap();
        for fault in FAULTS {
            for call in 1.. {
                let case = mix(mix(seed, fault as u64), call);
                let machine = machine.after_power_cut(Survivors::Random(case));
                machine.fail_at(call, fault);
                let mut found = oracle.clone();
                let opened = found.open(&machine);
                if machine.faults() == 0 && machine.calls() < call {
                    break;
                }
                hit += machine.faults();
                match opened {
                    Ok(Some(_)) => {}
                    Err(End::Error(_)) if machine.faults() > 0 => {}
                    other => panic!("seed {seed} call {call} {fault:?}: {other:?}"),
                }
                let mut judge = |image: &Machine| {
                    recoveries += 1;
                    oracle
                        .clone()
                        .open(image)
                        .map_err(|end| format!("{end:?}"))?
                        .map(drop)
                        .ok_or("no store".to_owned())
                };
                judge(&machine.after_restart())
                    .and_then(|()| images.each(&machine, case, judge))
                    .unwrap_or_else(|what| panic!("seed {seed} call {call} {fault:?}: {what}"));
            }
        }
    }
    // Recovery writes the newest group again with the same bytes, so no image can tear it.
    println!("faults in recovery: {images:?}");
    assert!(images.tried > 1000);
    println!("faults in recovery: {hit} hit, {recoveries} recoveries");
    assert!(hit > 200);
}

#[test]
fn a_restart_after_a_failed_recovery_and_then_a_power_cut_keep_what_was_acknowledged() {
    // The page cache has a header that the disk never got. Writes that depend on it must be durable on their own.
    let mut images = Images::default();
    for seed in 0..8 {
        let machine = Machine::new(seed);
        let mut oracle = Oracle::new();
        oracle.live(&machine, &program(seed, 20)).unwrap();
        for call in 1.. {
            let machine = machine.after_power_cut(Survivors::None);
            machine.fail_at(call, Fault::Eio);
            let mut first = oracle.clone();
            if first.open(&machine).is_ok() {
                break;
            }
            let machine = machine.after_restart();
            let mut second = oracle.clone();
            let (journal, _) = second.open(&machine).unwrap().expect("a store");
            second.run(&journal, &program(seed + 50, 3)).unwrap();
            let judge = |image: &Machine| match second.clone().open(image) {
                Ok(Some(_)) => Ok(()),
                other => Err(format!("{other:?}")),
            };
            images
                .each(&machine, mix(seed, call), judge)
                .unwrap_or_else(|what| panic!("seed {seed} call {call}: {what}"));
        }
    }
    println!("failed recovery, restart, power cut: {images:?}");
    assert!(images.tried > 100);
}

#[test]
fn who_waits_for_a_half_is_told_of_every_failure_at_once() {
    // A growth: length, allocation, sync, a read (there is no file to map). A commit: write, sync.
    for call in [3, 5, 6] {
        let machine = Machine::new(1);
        let mut oracle = Oracle::new();
        let journal = oracle.create(&machine).unwrap();
        machine.fail_at(machine.calls() + call, Fault::Eio);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| journal.wait_until_due(Duration::from_secs(60)));
            std::thread::sleep(Duration::from_millis(20));
            oracle.run(&journal, &[Step::Grow, Step::Line(0), Step::Commit]).expect_err("a call fails");
            assert!(journal.has_failed(), "call {call}");
            // The waiter must return long before its time limit, at which it would see the failure anyway.
            let mut looks = (0..20_000).inspect(|_| std::thread::sleep(Duration::from_millis(1)));
            assert!(looks.any(|_| waiter.is_finished()), "call {call}: nobody woke the waiter");
            assert!(matches!(waiter.join().unwrap(), Err(Error::Failed)));
        });
    }
}
