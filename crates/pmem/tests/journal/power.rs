//! A run is repeated with a power cut at each of its calls in turn: writes, syncs and growths of the files. Recovery and further work
//! follow, with a second power cut. Recovery finds the image after some group: the newest acknowledged one or a later one.

use pmem::region::{Found, Geometry, Identity};
use pmem::{Durability, Journal, Medium, Region, RegionOptions};

use crate::life::{
    End, ID, MAX_BYTES, Oracle, Step, program, several_sectors, with_discards, with_large_groups,
};
use crash::{Machine, Survivors, Which, by_tier, seeds};
use faults::{Images, mix};

/// The parameters of a sweep.
#[derive(Clone, Copy)]
struct Sweep {
    seed: u64,
    groups: usize,
    /// Distance between the second cuts, in changes. 0: none.
    second_every: u64,
    lies: Option<Which>,
    hasty: bool,
    /// True if every third group is larger than a half of the journal.
    large: bool,
    /// True if pages are discarded and reused.
    discards: bool,
}

/// The counts of a sweep.
#[derive(Debug, Default)]
struct Tally {
    cuts: u64,
    second_images: u64,
    recoveries: u64,
    replayed: u64,
    in_flight_kept: u64,
    in_flight_lost: u64,
    not_made: u64,
    discarded: u64,
    refilled: u64,
}

/// Number of random images of a first cut that are followed by second cuts. All subsets of the first cut would be too many.
const FIRST_RANDOM: u64 = 4;

/// Cuts a program at every change, in every way, and again in the work after it. Returns the first violation.
fn sweep(how: Sweep) -> Result<(Tally, Images), String> {
    let program = match (how.large, how.discards) {
        (true, _) => with_large_groups,
        (_, true) => with_discards,
        _ => program,
    };
    let steps = program(how.seed, how.groups);
    let more = [program(how.seed ^ 0xFF, 6), several_sectors()].concat();
    let (mut tally, mut images) = (Tally::default(), Images::default());
    for cut in 1.. {
        let machine = Machine::new(how.seed);
        machine.cut_at(cut);
        let mut oracle = Oracle::new();
        (oracle.hasty, oracle.lies) = (how.hasty, how.lies);
        match oracle.live(&machine, &steps) {
            Ok(_) if !machine.is_off() => return Ok((tally, images)),
            Ok(_) => {}
            Err(End::Error(_)) if machine.is_off() => {}
            Err(end) => return Err(format!("before cut {cut}: {end:?}")),
        }
        tally.cuts += 1;
        tally.discarded += oracle.discarded;
        tally.refilled += oracle.refilled;
        let name = |what| format!("seed {} cut {cut}: {what}", how.seed);
        let case = mix(how.seed, cut);
        if how.second_every == 0 {
            let judge = |image: &Machine| go_on(image, &oracle, &more, None, &mut tally).map(drop);
            images.each(&machine, case, judge).map_err(name)?;
            continue;
        }
        let random = (0..FIRST_RANDOM).map(|number| Survivors::Random(mix(case, number)));
        for survivors in [Survivors::None, Survivors::All].into_iter().chain(random) {
            let image = machine.after_power_cut(survivors);
            let name = |what| name(format!("{survivors:?}: {what}"));
            for second in (0..).step_by(how.second_every as usize) {
                let second = (second > 0).then_some(second);
                let cut = go_on(&image, &oracle, &more, second, &mut tally).map_err(name)?;
                let Some((machine, oracle)) = cut else { if second.is_some() { break } else { continue } };
                let case = mix(case, second.unwrap_or(0));
                let judge = |image: &Machine| recovers(image, &oracle, &mut tally);
                let judged = images.each(&machine, case, judge);
                judged.map_err(|what| name(format!("second cut {second:?}: {what}")))?;
            }
        }
    }
    unreachable!("the run ends")
}

/// Recovers after a cut and continues. Returns the machine if the power is cut again, at change `second` of this work.
fn go_on(
    image: &Machine,
    oracle: &Oracle,
    more: &[Step],
    second: Option<u64>,
    tally: &mut Tally,
) -> Result<Option<(Machine, Oracle)>, String> {
    let mut machine = image.after_restart();
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
    Ok(machine.is_off().then_some((machine, oracle)))
}

/// Recovers after a second cut.
fn recovers(image: &Machine, oracle: &Oracle, tally: &mut Tally) -> Result<(), String> {
    tally.second_images += 1;
    let mut oracle = oracle.clone();
    let (before, begun) = oracle.in_flight();
    match oracle.open(image) {
        Ok(Some((_, replay))) => {
            tally.recoveries += 1;
            tally.replayed += u64::from(replay.groups > 0);
            tally.in_flight_kept += u64::from(before < begun && replay.newest == begun);
            tally.in_flight_lost += u64::from(before < begun && replay.newest == before);
        }
        Ok(None) => tally.not_made += 1,
        Err(end) => return Err(format!("{end:?}")),
    }
    Ok(())
}

#[test]
fn a_power_cut_at_every_change_leaves_the_image_of_a_group_that_may_be_the_newest() {
    let (mut total, mut images) = (Tally::default(), Images::default());
    for seed in seeds(6, 16) {
        let how = Sweep {
            seed,
            groups: 40,
            second_every: 0,
            lies: None,
            hasty: false,
            large: false,
            discards: false,
        };
        let (tally, tried) = sweep(how).unwrap_or_else(|what| panic!("{what}"));
        images.add(&tried);
        total.cuts += tally.cuts;
        total.recoveries += tally.recoveries;
        total.replayed += tally.replayed;
        total.not_made += tally.not_made;
    }
    println!("one cut: {total:?}");
    images.require("one cut", by_tier(2_800, 9_000));
    assert!(
        total.cuts > by_tier(370, 1000) && total.replayed > by_tier(1_900, 5000) && total.not_made > 0,
        "{total:?}"
    );
}

#[test]
fn a_second_cut_at_every_change_of_recovery_and_of_what_follows_is_recovered_too() {
    let (mut total, mut images) = (Tally::default(), Images::default());
    for seed in seeds(1, 2) {
        let second_every = 3;
        let how = Sweep {
            seed: seed + 100,
            groups: 12,
            second_every,
            lies: None,
            hasty: false,
            large: false,
            discards: false,
        };
        let (tally, tried) = sweep(how).unwrap_or_else(|what| panic!("{what}"));
        images.add(&tried);
        total.cuts += tally.cuts;
        total.second_images += tally.second_images;
        total.recoveries += tally.recoveries;
        total.replayed += tally.replayed;
        total.in_flight_kept += tally.in_flight_kept;
        total.in_flight_lost += tally.in_flight_lost;
        total.not_made += tally.not_made;
    }
    println!("two cuts: {total:?}");
    images.require("two cuts", by_tier(4_000, 15_000));
    let in_flight_min = by_tier(30, 100);
    assert!(
        images.cuts > by_tier(1_300, 5_000)
            && total.in_flight_kept > in_flight_min
            && total.in_flight_lost > in_flight_min,
        "{total:?}"
    );
}

#[test]
fn a_power_cut_around_groups_that_are_larger_than_a_half_leaves_each_of_them_whole_or_absent() {
    let (mut total, mut images) = (Tally::default(), Images::default());
    let one = Sweep {
        seed: 41,
        groups: 24,
        second_every: 0,
        lies: None,
        hasty: false,
        large: true,
        discards: false,
    };
    for how in [one, Sweep { seed: 42, groups: 9, second_every: by_tier(4, 1), ..one }] {
        let (tally, tried) = sweep(how).unwrap_or_else(|what| panic!("{what}"));
        images.add(&tried);
        total.cuts += tally.cuts;
        total.second_images += tally.second_images;
        total.replayed += tally.replayed;
        total.in_flight_kept += tally.in_flight_kept;
        total.in_flight_lost += tally.in_flight_lost;
    }
    println!("large groups: {total:?}, {images:?}");
    let in_flight_min = by_tier(10, 40);
    assert!(total.in_flight_kept > in_flight_min && total.in_flight_lost > in_flight_min, "{total:?}");
    for how in [Sweep { hasty: true, ..one }, Sweep { lies: Some(Which::Journal), ..one }] {
        println!("caught: {}", sweep(how).expect_err("acknowledged before the sync"));
    }
}

#[test]
fn a_power_cut_around_the_punch_and_the_reuse_of_free_pages_loses_nothing_of_any_group() {
    let (mut total, mut images) = (Tally::default(), Images::default());
    let one = Sweep {
        seed: 61,
        groups: 24,
        second_every: 0,
        lies: None,
        hasty: false,
        large: false,
        discards: true,
    };
    for how in
        [one, Sweep { seed: 62, ..one }, Sweep { seed: 63, groups: 8, second_every: by_tier(4, 1), ..one }]
    {
        let (tally, tried) = sweep(how).unwrap_or_else(|what| panic!("{what}"));
        images.add(&tried);
        total.cuts += tally.cuts;
        total.second_images += tally.second_images;
        total.replayed += tally.replayed;
        total.discarded += tally.discarded;
        total.refilled += tally.refilled;
    }
    println!("discards: {total:?}, {images:?}");
    assert!(total.discarded > 1000 && total.refilled > 500, "{total:?}");
    for how in [Sweep { hasty: true, ..one }, Sweep { lies: Some(Which::Data), ..one }] {
        println!("caught: {}", sweep(how).expect_err("a sync that was left out"));
    }
}

#[test]
fn who_acknowledges_before_the_sync_or_syncs_nothing_is_caught() {
    let honest = Sweep {
        seed: 7,
        groups: 30,
        second_every: 0,
        lies: None,
        hasty: false,
        large: false,
        discards: false,
    };
    sweep(honest).unwrap();
    let faults = [
        ("acknowledged before the sync", Sweep { hasty: true, ..honest }),
        ("the journal's syncs do nothing", Sweep { lies: Some(Which::Journal), ..honest }),
        ("the data file's syncs do nothing", Sweep { lies: Some(Which::Data), ..honest }),
    ];
    for (name, how) in faults {
        let caught = sweep(how).expect_err(name);
        println!("{name}: {caught}");
    }
}

#[test]
fn a_region_over_a_journal_opens_after_a_cut_at_any_change_of_its_life() {
    let geometry = Geometry::tiny();
    let identity = Identity { engine: "test".into(), kind: "word".into(), node_lines: 8 };
    let options = RegionOptions { geometry, identity };
    let (mut images, mut opened) = (Images::default(), 0);
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
        let judge = |image: &Machine| {
            let (data, journal) = (image.storage(Which::Data), image.storage(Which::Journal));
            let journal = match Journal::open_on(data, journal, MAX_BYTES) {
                Err(error) if made => return Err(error.to_string()),
                Err(_) => return Ok(()),
                Ok((journal, _)) => journal,
            };
            match Region::open(journal, "store".as_ref()) {
                Ok((_, found)) if closed && found != Found::Clean { keys: 5 } => Err(format!("{found:?}")),
                Err(error) if made => Err(error.to_string()),
                outcome => {
                    opened += u64::from(outcome.is_ok());
                    Ok(())
                }
            }
        };
        images.each(&machine, mix(7, cut), judge).unwrap_or_else(|what| panic!("cut {cut}: {what}"));
    }
    println!("region: {images:?}, {opened} regions opened");
    assert!(images.cuts > 20 && images.enumerated > 20 && opened > 35);
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
        // If another thread makes the checkpoints, a commit waits only for its own sync.
        checkpoints += u64::from(journal.checkpoint().unwrap().is_some());
        let before = machine.calls();
        for line in 0..lines {
            (0..8).for_each(|word| journal.copy(line * 64 + word * 8, group));
        }
        assert_eq!(machine.calls(), before, "a store calls nobody");
        let running = journal.group().unwrap();
        assert_eq!((running.lines, running.lines_max), (lines, journal.group_lines_max()));
        assert_eq!(journal.commit().unwrap(), group);
        assert_eq!(machine.calls(), before + 2);
        // Nothing stored, or equal words, or other words and then the old ones.
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
