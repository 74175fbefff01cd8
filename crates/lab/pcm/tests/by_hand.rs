//! Small sequences whose cycles were computed by hand, from the table in the head of `sim` and the parameters of the wB+-Tree paper's Table
//! 4.

use std::sync::Arc;

use pcm::{Config, Levelling, Pcm, Sim, Totals};
use pmem::observed::{Memory, Observed};
use pmem::{Fence, Medium};

const LINES: u64 = 1 << 20;

fn memory(lines: u64) -> Arc<Memory> {
    Memory::new(lines * 64, lines * 64)
}

fn sim(config: Config) -> (Arc<Memory>, Sim) {
    let memory = memory(LINES);
    let mut sim = Sim::new(Arc::clone(&memory), config);
    sim.begin();
    (memory, sim)
}

fn store(memory: &Memory, sim: &mut Sim, word: u64, value: u64) {
    sim.store(word / 8);
    memory.poke(word * 8, value);
}

#[test]
fn a_load_waits_for_the_level_that_has_the_line() {
    let (_, mut sim) = sim(Config::pcm());
    sim.load(0);
    // One cycle to compare, then the translation, the lookup in L3, and the rank.
    assert_eq!(sim.totals().cycles, 1 + 39 + 39 + 230);
    sim.load(0);
    assert_eq!(sim.totals().cycles, 309 + 1 + 4);
    // Eight more lines of the same set of L1 (64 sets): the first line is then found in L2. Each is in another page, so each costs 39
    // cycles of translation, except that of the first line, which is still in the TLB.
    (1..=8).for_each(|i| sim.load(i * 64));
    let before = sim.totals();
    assert_eq!(before.cycles, 314 + 8 * 309);
    sim.load(0);
    let spent = sim.totals() - before;
    assert_eq!((spent.cycles, spent.l1_misses, spent.l2_misses, spent.line_reads), (1 + 11, 1, 0, 0));
    assert_eq!((sim.totals().loads, sim.totals().tlb_misses, sim.totals().line_reads), (11, 9, 9));
    assert!((sim.totals().read_pj - 9.0 * 512.0 * 2.0).abs() < 1e-9);
}

#[test]
fn prefetches_overlap_among_ranks_and_follow_each_other_within_one() {
    let (_, mut sim) = sim(Config::pcm());
    [0, 1, 4].into_iter().for_each(|line| sim.prefetch(line));
    // Issued at 40, 41 and 42; available at 270, at 271, and at 500: the rank of the third line serves the first line before it.
    assert_eq!(sim.totals().cycles, 42);
    sim.load(0);
    assert_eq!(sim.totals().cycles, 270);
    sim.load(1);
    assert_eq!(sim.totals().cycles, 275);
    sim.load(4);
    assert_eq!(sim.totals().cycles, 500);
}

#[test]
fn a_fence_waits_for_what_was_flushed_and_the_device_for_each_new_word() {
    let (memory, mut sim) = sim(Config::pcm());
    store(&memory, &mut sim, 0, 0b101);
    store(&memory, &mut sim, 1, u64::MAX);
    // The stores do not wait for the line, but the flush does: requested at 40, available at 270.
    assert_eq!(sim.totals().cycles, 41);
    sim.flush(0);
    assert_eq!(sim.totals().cycles, 270);
    sim.fence();
    let totals = sim.totals();
    assert_eq!((totals.cycles, totals.fence_cycles), (270 + 2 * 450, 900));
    assert_eq!((totals.line_writes, totals.words_written, totals.bits_written), (1, 2, 66));
    assert!((totals.write_pj - 66.0 * 16.0).abs() < 1e-9);
    assert_eq!(sim.wear().hottest(2), [(0, 1)]);
    // The line left the cache, so it is read again. The store has the old value, so nothing is written.
    store(&memory, &mut sim, 0, 0b101);
    sim.flush(0);
    sim.fence();
    let spent = sim.totals() - totals;
    assert_eq!(
        (spent.cycles, spent.line_reads, spent.line_writes),
        (1 + 230, 1, 0),
        "the flush waits for the line"
    );
}

#[test]
fn a_store_buffer_has_space_for_so_many_lines() {
    let (memory, mut sim) = sim(Config { fills: 2, ..Config::pcm() });
    (0..2).for_each(|line| store(&memory, &mut sim, line * 8, 1));
    assert_eq!(sim.totals().cycles, 41);
    // The third store waits for the first transfer, which was requested at 40. No rank delays its own line.
    store(&memory, &mut sim, 16, 1);
    assert_eq!(sim.totals().cycles, 270);
    // A fence waits for the lines of all stores, also without a flush: the last line was requested at 270.
    sim.fence();
    assert_eq!(sim.totals().cycles, 500);
}

#[test]
fn a_full_queue_holds_up_flushes() {
    let (memory, mut sim) = sim(Config { queue: 2, ranks: 1, tlb_miss_cycles: 0, ..Config::pcm() });
    (0..3).for_each(|line| store(&memory, &mut sim, line * 8, 1));
    // Requested at 1, 2 and 3 from one rank: available at 231, 461 and 691.
    sim.flush(0);
    assert_eq!(sim.totals().cycles, 231);
    // The read of the second line began before the write: the rank writes from 691 to 1141.
    sim.flush(1);
    assert_eq!(sim.totals().cycles, 461);
    sim.flush(2);
    assert_eq!((sim.totals().cycles, sim.totals().queue_cycles), (1141, 1141 - 691));
    sim.fence();
    assert_eq!(sim.totals().cycles, 691 + 3 * 450);
}

#[test]
fn a_dirty_line_that_has_to_leave_is_written_and_nobody_waits_for_it() {
    let level = |bytes, cycles| pcm::Level { bytes, ways: 2, cycles };
    let small = Config { l1: level(256, 4), l2: level(256, 11), l3: level(256, 39), ..Config::pcm() };
    let (memory, mut sim) = sim(small);
    store(&memory, &mut sim, 0, 7);
    [2, 4].into_iter().for_each(|line| sim.load(line));
    let totals = sim.totals();
    assert_eq!((totals.line_writes, totals.words_written, totals.bits_written), (1, 1, 3));
    sim.fence();
    assert_eq!(sim.totals().fence_cycles, 0);
}

#[test]
fn flushes_may_keep_lines_and_lines_may_be_written_as_a_whole() {
    let mut config = Config::nvdimm();
    config.set("flush-keeps=1").unwrap();
    let (memory, mut sim) = sim(config);
    (0..8).for_each(|word| store(&memory, &mut sim, word, 1));
    sim.flush(0);
    sim.fence();
    // Requested at 40, available at 190, written in 150 cycles.
    assert_eq!(sim.totals().cycles, 340);
    sim.load(0);
    assert_eq!((sim.totals().cycles, sim.totals().line_reads), (345, 1));
}

#[test]
fn levelling_costs_a_write_now_and_then() {
    let memory = memory(16);
    let mut sim = Sim::new(Arc::clone(&memory), Config::pcm());
    sim.level(Levelling::StartGap { writes: 4 });
    sim.begin();
    for value in 1..=8 {
        store(&memory, &mut sim, 0, value);
        sim.flush(0);
        sim.fence();
    }
    assert_eq!((sim.totals().line_writes, sim.wear().moves()), (10, 2));
    assert_eq!(sim.wear().total(), 10);
}

/// The same calls give the same cycles: through the medium, in two runs, independent of other uses of the memory.
#[test]
fn what_a_medium_is_charged_depends_on_its_calls_alone() {
    let run = |before: u64| -> Totals {
        let memory = memory(1 << 14);
        let pcm = Pcm::new(Arc::clone(&memory), Config::pcm(), true);
        let medium = Observed::new(memory, pcm.clone());
        (0..before).for_each(|word| medium.copy(word * 8, 0));
        assert_eq!(pcm.totals(), Totals::default(), "switched off");
        pcm.begin();
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let at = random.u64(..1 << 10) * 64;
            match random.u8(..5) {
                0 => medium.copy(at, random.u64(..)),
                1 => medium.prefetch(at, 128),
                2 => medium.flush(at, 8),
                3 => medium.fence(Fence::Commit),
                _ => _ = medium.word(at),
            }
        }
        pcm.end();
        medium.copy(0, 1);
        pcm.totals()
    };
    let totals = run(0);
    assert_eq!(totals, run(100));
    println!("{totals:?}");
    assert!(totals.cycles > 100_000 && totals.line_writes > 500 && totals.bits_written > 16_000);
}
