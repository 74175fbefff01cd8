//! A power cut at every write, sync and growth of a run, and another one in what comes after it: the image is what some group
//! left, from the newest acknowledged to the newest begun.

use pmem::region::{Found, Geometry, Identity};
use pmem::{Durability, Group, Journal, Medium, Region, RegionOptions};

use crate::life::{End, ID, MAX_BYTES, Oracle, Step, program};
use crash::{Machine, Survivors, Which};

/// How a sweep cuts.
#[derive(Clone, Copy)]
struct Sweep {
    seed: u64,
    groups: usize,
    /// Cuts after the first one: every how many changes.
    second_every: u64,
    lies: Option<Which>,
    hasty: bool,
}

/// What a sweep did.
#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    second_cuts: u64,
    recoveries: u64,
    replayed: u64,
    in_flight_kept: u64,
    in_flight_lost: u64,
    not_made: u64,
}

const SURVIVORS: [Survivors; 6] = [
    Survivors::None,
    Survivors::All,
    Survivors::Random(1),
    Survivors::Random(2),
    Survivors::Random(3),
    Survivors::Random(4),
];

/// Lets a program be cut at every change, in every way, and again in what comes after; says what was broken.
fn sweep(how: Sweep) -> Result<Tally, String> {
    let steps = program(how.seed, how.groups);
    let more = program(how.seed ^ 0xFF, 6);
    let mut tally = Tally::default();
    for cut in 1.. {
        let machine = Machine::new(how.seed);
        machine.cut_at(cut);
        let mut oracle = Oracle::new();
        (oracle.hasty, oracle.lies) = (how.hasty, how.lies);
        match oracle.live(&machine, &steps) {
            Ok(_) if !machine.is_off() => return Ok(tally),
            Ok(_) => {}
            Err(End::Error(_)) if machine.is_off() => {}
            Err(end) => return Err(format!("before cut {cut}: {end:?}")),
        }
        tally.cuts += 1;
        for survivors in SURVIVORS {
            let name = format!("seed {} cut {cut} {survivors:?}", how.seed);
            again(&machine, &oracle, survivors, &more, how.second_every, &mut tally)
                .map_err(|what| format!("{name}: {what}"))?;
        }
    }
    unreachable!("the run ends")
}

/// Recovers what a cut left and goes on, first without a second cut, then with one at every so many changes.
fn again(
    machine: &Machine,
    oracle: &Oracle,
    survivors: Survivors,
    more: &[Step],
    second_every: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut second = None;
    loop {
        let mut machine = machine.after_power_cut(survivors);
        let mut oracle = oracle.clone();
        if let Some(second) = second {
            machine.cut_at(second);
        }
        match oracle.open(&machine) {
            Ok(Some((journal, replay))) => {
                tally.recoveries += 1;
                tally.replayed += u64::from(replay.groups > 0);
                match oracle.run(&journal, more) {
                    Ok(()) => {}
                    Err(End::Error(_)) if machine.is_off() => {}
                    Err(end) => return Err(format!("going on: {end:?}")),
                }
            }
            Ok(None) => {
                tally.not_made += 1;
                machine = Machine::new(1);
                oracle.live(&machine, more).map_err(|end| format!("made anew: {end:?}"))?;
            }
            Err(End::Error(_)) if machine.is_off() => {}
            Err(end) => return Err(format!("at the first recovery: {end:?}")),
        }
        if machine.is_off() {
            tally.second_cuts += 1;
            for survivors in [Survivors::None, Survivors::All, Survivors::Random(second.unwrap_or(0))] {
                let machine = machine.after_power_cut(survivors);
                let mut oracle = oracle.clone();
                let (before, begun) = oracle.in_flight();
                match oracle.open(&machine) {
                    Ok(Some((_, replay))) => {
                        tally.recoveries += 1;
                        tally.replayed += u64::from(replay.groups > 0);
                        tally.in_flight_kept += u64::from(before < begun && replay.newest == begun);
                        tally.in_flight_lost += u64::from(before < begun && replay.newest == before);
                    }
                    Ok(None) => tally.not_made += 1,
                    Err(end) => return Err(format!("second cut {second:?} {survivors:?}: {end:?}")),
                }
            }
        } else if second.is_some() {
            return Ok(());
        }
        if second_every == 0 {
            return Ok(());
        }
        second = Some(second.map_or(1, |at| at + second_every));
    }
}

#[test]
fn a_power_cut_at_every_change_leaves_the_image_of_a_group_that_may_be_the_newest() {
    let mut total = Tally::default();
    for seed in 0..16 {
        let how = Sweep { seed, groups: 40, second_every: 0, lies: None, hasty: false };
        let tally = sweep(how).unwrap_or_else(|what| panic!("{what}"));
        total.cuts += tally.cuts;
        total.recoveries += tally.recoveries;
        total.replayed += tally.replayed;
        total.not_made += tally.not_made;
    }
    println!("one cut: {total:?}");
    assert!(total.cuts > 1000 && total.replayed > 5000 && total.not_made > 0, "{total:?}");
}

#[test]
fn a_second_cut_at_every_change_of_recovery_and_of_what_follows_is_recovered_too() {
    let mut total = Tally::default();
    for seed in 100..102 {
        let how = Sweep { seed, groups: 12, second_every: 1, lies: None, hasty: false };
        let tally = sweep(how).unwrap_or_else(|what| panic!("{what}"));
        total.cuts += tally.cuts;
        total.second_cuts += tally.second_cuts;
        total.recoveries += tally.recoveries;
        total.replayed += tally.replayed;
        total.in_flight_kept += tally.in_flight_kept;
        total.in_flight_lost += tally.in_flight_lost;
        total.not_made += tally.not_made;
    }
    println!("two cuts: {total:?}");
    assert!(
        total.second_cuts > 9_000 && total.in_flight_kept > 100 && total.in_flight_lost > 100,
        "{total:?}"
    );
}

#[test]
fn who_acknowledges_before_the_sync_or_syncs_nothing_is_caught() {
    let honest = Sweep { seed: 7, groups: 30, second_every: 0, lies: None, hasty: false };
    sweep(honest).unwrap();
    let canaries = [
        ("acknowledged before the sync", Sweep { hasty: true, ..honest }),
        ("the journal's syncs do nothing", Sweep { lies: Some(Which::Journal), ..honest }),
        ("the data file's syncs do nothing", Sweep { lies: Some(Which::Data), ..honest }),
    ];
    for (name, how) in canaries {
        let caught = sweep(how).expect_err(name);
        println!("{name}: {caught}");
    }
}

#[test]
fn a_region_over_a_journal_opens_after_a_cut_at_any_change_of_its_life() {
    let geometry = Geometry::tiny();
    let identity = Identity { engine: "test".into(), kind: "word".into(), node_lines: 8 };
    let options = RegionOptions { geometry, identity };
    let (mut cuts, mut opened) = (0, 0);
    for cut in 1.. {
        let machine = Machine::new(cut);
        machine.cut_at(cut);
        let mut made = false;
        let mut closed = false;
        let mut live = || -> Result<(), pmem::Error> {
            let sizes = pmem::journal::Options { capacity_bytes: 16 << 10, max_bytes: MAX_BYTES };
            let (data, journal) = (machine.storage(Which::Data), machine.storage(Which::Journal));
            let journal = Journal::create_on(data, journal, ID, &sizes)?;
            let region = Region::create(journal, &options, Durability::Power)?;
            made = true;
            region.mark_in_use(Durability::Power)?;
            region.grow(region.medium().len() + 4096)?;
            region.medium().commit()?;
            region.mark_clean(5)?;
            closed = true;
            region.medium().checkpoint_all()
        };
        let whole = live().is_ok();
        if whole && !machine.is_off() {
            break;
        }
        cuts += 1;
        for survivors in SURVIVORS {
            let machine = machine.after_power_cut(survivors);
            let (data, journal) = (machine.storage(Which::Data), machine.storage(Which::Journal));
            let Ok((journal, _)) = Journal::open_on(data, journal, MAX_BYTES) else {
                assert!(!made, "cut {cut} {survivors:?}");
                continue;
            };
            match Region::open(journal, "store".as_ref()) {
                Ok((_, found)) => {
                    opened += 1;
                    assert!(
                        !closed || found == Found::Clean { keys: 5 },
                        "cut {cut} {survivors:?}: {found:?}"
                    );
                }
                Err(error) => assert!(!made, "cut {cut} {survivors:?}: {error}"),
            }
        }
    }
    println!("region: {cuts} cuts, {opened} regions opened");
    assert!(cuts > 20 && opened > 60);
}

#[test]
fn a_group_costs_one_write_and_one_sync_and_one_that_changes_nothing_costs_nothing() {
    let machine = Machine::new(9);
    let mut oracle = Oracle::new();
    let journal = oracle.create(&machine).unwrap();
    journal.grow(1 << 14).unwrap();
    let mut rng = fastrand::Rng::with_seed(9);
    let mut checkpoints = 0;
    for group in 1..=200 {
        let lines = rng.u64(1..40);
        // Beside a thread that does this, a commit waits for nothing but its own sync.
        checkpoints += u64::from(journal.checkpoint().unwrap().is_some());
        let before = machine.calls();
        for line in 0..lines {
            (0..8).for_each(|word| journal.copy(line * 64 + word * 8, group));
        }
        assert_eq!(machine.calls(), before, "a store calls nobody");
        assert_eq!(journal.group(), Some(Group { lines, lines_max: journal.group_lines_max() }));
        assert_eq!(journal.commit().unwrap(), group);
        assert_eq!(machine.calls(), before + 2);
        // Nothing stored, or the same words again, or other words and back.
        assert_eq!(journal.commit().unwrap(), group);
        journal.copy(0, group);
        journal.copy(64, group + 1);
        journal.copy(64, if lines > 1 { group } else { journal.word(72) });
        assert_eq!(journal.commit().unwrap(), group);
        assert_eq!(machine.calls(), before + 2);
    }
    println!("{checkpoints} checkpoints in 200 groups");
    assert!(checkpoints > 5);
}
