//! Every vector comparison agrees with a plain loop.

use std::sync::atomic::Ordering;

use super::*;

/// All kinds of vectors that the processor has.
fn all_kinds() -> impl Iterator<Item = Vectors> {
    let wide = Wide::of_processor().map(Vectors::Wide);
    wide.into_iter().chain(Narrow::of_processor().map(Vectors::Narrow))
}

/// A function as a body.
struct Run<F>(F);

impl<F: FnOnce()> Body for Run<F> {
    type Out = ();
    fn run(self, _: Option<Vectors>) {
        (self.0)();
    }
}

/// Compares a mask of the keys up to a probe with a plain loop. The mask gets the lines, the first word, the number of keys and the probe.
pub(super) fn keys_from_any_word_on_agree_with_a_plain_loop(
    mask: impl Fn(&[Line], usize, usize, u64) -> u64,
) {
    for count in 1..=16_usize {
        let lines: Vec<Line> = (0..count).map(|_| Line::zero()).collect();
        let word = |i: usize| &lines[i / 8].0[i % 8];
        (0..8 * count).for_each(|i| word(i).store((i as u64 * 7919) << 58, Ordering::Relaxed));
        for probe in (0..64_u64).map(|key| key << 58).chain([u64::MAX]) {
            for first in [0, 2, 3, 8] {
                let keys = (8 * count).saturating_sub(first).min(64) / 8 * 8;
                let mask = mask(&lines, first, keys, probe);
                for i in 0..keys {
                    assert_eq!(mask >> i & 1 == 1, word(first + i).load(Ordering::Relaxed) <= probe);
                }
            }
        }
    }
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn the_kernel_lists_every_feature_exactly_where_vectors_are_available() {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags")).unwrap();
    let has =
        |wanted: &[&str]| wanted.iter().all(|wanted| flags.split_whitespace().any(|flag| flag == *wanted));
    let wide = ["avx512f", "avx512dq", "avx512bw", "popcnt", "abm", "bmi1", "bmi2"];
    assert_eq!(available(), has(&wide));
    assert_eq!(Narrow::of_processor().is_some(), has(&["avx2", "popcnt", "abm", "bmi1", "bmi2"]));
}

#[test]
fn masks_of_words_and_of_their_upper_bits_agree_with_a_plain_loop() {
    let mut random = 7_u64;
    for count in 1..=8_usize {
        let lines: Vec<Line> = (0..count).map(|_| Line::zero()).collect();
        for word in lines.iter().flat_map(|line| &line.0) {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word.store((random >> 62) << 48 | random >> 60, Ordering::Relaxed);
        }
        let word = |i: usize| lines[i / 8].0[i % 8].load(Ordering::Relaxed);
        let mask = |is: &dyn Fn(u64) -> bool| {
            (0..count * 8).filter(|i| is(word(*i))).fold(0, |mask, i| mask | 1_u64 << i)
        };
        for probe in [0, 2 << 48 | 5, u64::MAX] {
            let top = (probe >> 48) as u16;
            let halves = (0..count * 8).flat_map(|i| [word(i) as u32, (word(i) >> 32) as u32]);
            let halves_up_to = halves.filter(|half| *half <= probe as u32).count();
            let quarters = (0..count * 32).map(|i| (word(i / 4) >> (16 * (i % 4))) as u16);
            let quarters_up_to = quarters.filter(|quarter| *quarter <= top).count();
            for vectors in all_kinds() {
                vectors.run_body(Run(|| {
                    assert_eq!(vectors.tops(&lines, top), mask(&|word| word >> 48 == u64::from(top)));
                    assert_eq!(vectors.parts_up_to::<32>(&lines, probe as u32), halves_up_to);
                    assert_eq!(vectors.parts_up_to::<16>(&lines, u32::from(top)), quarters_up_to);
                    assert_eq!(vectors.words::<UP_TO>(&lines, probe), mask(&|word| word <= probe));
                    assert_eq!(vectors.words::<BELOW>(&lines, probe), mask(&|word| word < probe));
                    assert_eq!(vectors.words::<EQUAL>(&lines, probe), mask(&|word| word == probe));
                }));
            }
        }
    }
}

#[test]
fn parts_are_the_bits_of_their_words() {
    let lines: Vec<Line> = (0..3).map(|_| Line::zero()).collect();
    for (i, word) in lines.iter().flat_map(|line| &line.0).enumerate() {
        word.store((i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15), Ordering::Relaxed);
    }
    let bits = |at: usize, bits: usize| {
        let word = lines[at / 512].0[at / 64 % 8].load(Ordering::Relaxed);
        word >> (at % 64) & (u64::MAX >> (64 - bits))
    };
    assert!((0..96).all(|i| part::<16>(&lines, i) == bits(16 * i, 16)));
    assert!((0..48).all(|i| part::<32>(&lines, i) == bits(32 * i, 32)));
    assert!((0..24).all(|i| part::<64>(&lines, i) == bits(64 * i, 64)));
    assert!(std::panic::catch_unwind(|| part::<16>(&lines, 96)).is_err());
}

#[test]
fn slots_agree_with_a_plain_loop_for_every_number_of_lines() {
    let Some(vectors) = Wide::of_processor() else { return };
    let mut random = 1_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 33
    };
    for count in 1..=64_usize {
        let lines: Vec<Line> = (0..count).map(|_| Line::zero()).collect();
        for line in &lines {
            for half in [0, 4] {
                line.0[half].store((next() % 5) << 62 | (next() % 3) << 8 | (next() % 4), Ordering::Relaxed);
                line.0[half + 1].store(u64::MAX, Ordering::Relaxed);
                line.0[half + 2].store(next() % 7, Ordering::Relaxed);
                line.0[half + 3].store(next() % 7, Ordering::Relaxed);
            }
        }
        for _ in 0..20 {
            let (probe, version) = ((next() % 5) << 62 | (next() % 3) << 8 | (next() % 4), next() % 8);
            let plain = vectors.slots::<false>(&lines, probe, version);
            let prefix = vectors.slots::<true>(&lines, probe, version);
            for slot in 0..128 {
                let words = lines
                    .get(slot / 2)
                    .map(|line| [0, 1, 2, 3].map(|word| line.0[slot % 2 * 4 + word].load(Ordering::Relaxed)));
                let is = |of: fn([u64; 4], u64, u64) -> bool| words.is_some_and(|w| of(w, probe, version));
                let bit = |mask: u128| mask >> slot & 1 == 1;
                assert_eq!(bit(plain.up_to), is(|w, probe, _| w[0] <= probe));
                assert_eq!(bit(plain.same), is(|w, probe, _| w[0] == probe));
                assert_eq!(bit(prefix.same), is(|w, probe, _| w[0] & 1 == 0 || w[0] >> 8 == probe >> 8));
                assert_eq!(bit(plain.begun), is(|w, _, at| w[2] != 0 && w[2] <= at));
                assert_eq!(bit(plain.ended), is(|w, _, at| w[3] != 0 && w[3] <= at));
                assert_eq!((plain.up_to, plain.begun), (prefix.up_to, prefix.begun));
            }
        }
    }
}

#[test]
fn masks_agree_with_a_plain_loop_for_every_number_of_lines() {
    for count in 1..=16_usize {
        let lines: Vec<Line> = (0..count).map(|_| Line::zero()).collect();
        for pair in 0..4 * count {
            let key = (pair as u64 * 7919) % 64;
            lines[pair / 4].0[pair % 4 * 2].store(key << 58, Ordering::Relaxed);
            lines[pair / 4].0[pair % 4 * 2 + 1].store(u64::MAX, Ordering::Relaxed);
        }
        for probe in (0..64_u64).map(|k| k << 58).chain([u64::MAX]) {
            for vectors in all_kinds() {
                vectors.run_body(Run(|| {
                    let below = vectors.pairs::<BELOW>(&lines, probe);
                    let equal = vectors.pairs::<EQUAL>(&lines, probe);
                    let up_to = vectors.pairs::<UP_TO>(&lines, probe);
                    for pair in 0..64 {
                        let key = ((pair as u64 * 7919) % 64) << 58;
                        let there = pair < 4 * count;
                        assert_eq!(below >> pair & 1 == 1, there && key < probe);
                        assert_eq!(equal >> pair & 1 == 1, there && key == probe);
                        assert_eq!(up_to >> pair & 1 == 1, there && key <= probe);
                    }
                }));
            }
        }
    }
}

#[test]
fn chosen_pairs_are_copied_and_sorted() {
    let mut random = 3_u64;
    let mut next = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random.rotate_right(31)
    };
    for count in 1..=16_usize {
        let lines: Vec<Line> = (0..count).map(|_| Line::zero()).collect();
        // Few different keys, so that some are equal; or many, with the greatest one.
        for keys in [20, u64::MAX] {
            let words = lines.iter().flat_map(|line| &line.0);
            words.for_each(|word| word.store(next() % keys, Ordering::Relaxed));
            lines[0].0[0].store(u64::MAX, Ordering::Relaxed);
            let pair = |i: usize| [0, 1].map(|at| lines[i / 4].0[i % 4 * 2 + at].load(Ordering::Relaxed));
            for which in [0, 1, u64::MAX, next(), next(), next()] {
                let which = if count == 16 { which } else { which & ((1 << (4 * count)) - 1) };
                let chosen: Vec<_> = (0..64)
                    .filter(|i| which >> i & 1 == 1)
                    .map(pair)
                    .map(|[key, value]| (key, value))
                    .collect();
                let mut expected = chosen.clone();
                expected.sort_unstable();
                let are_different = expected.windows(2).all(|two| two[0].0 < two[1].0);
                for vectors in all_kinds() {
                    vectors.run_body(Run(|| {
                        let columns = vectors.columns(&lines, which);
                        assert_eq!(columns.pairs().collect::<Vec<_>>(), chosen, "{vectors:?}");
                        for kind in [None, Some(vectors)] {
                            let mut sorted = vec![(0, 0); chosen.len()];
                            let is_sorted = columns.sort(kind, |at, key, value| sorted[at] = (key, value));
                            assert_eq!(is_sorted, are_different, "{kind:?}");
                            assert!(!is_sorted || sorted == expected, "{kind:?}");
                        }
                    }));
                }
            }
        }
    }
    let mut columns = Columns::default();
    (0..PAIRS as u64 + 1).for_each(|key| columns.push(key, 0));
    assert_eq!(columns.len(), PAIRS, "a further pair is not added");
}
