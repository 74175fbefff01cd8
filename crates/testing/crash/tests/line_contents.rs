//! The possible contents of one line after a crash, compared with examples worked by hand.

use std::collections::BTreeSet;

use crash::Words;
use crash::line::{LineState, Pending, contents};
use pmem::Store;

fn copy(word: usize, value: u64) -> Pending {
    Pending { word, value, kind: Store::Copy }
}

fn publish(word: usize, value: u64) -> Pending {
    Pending { word, value, kind: Store::Publish }
}

fn words(first: &[u64]) -> Words {
    std::array::from_fn(|word| first.get(word).copied().unwrap_or(0))
}

#[track_caller]
fn expect(pending: &[Pending], expected: &[&[u64]]) {
    let choices = contents(&words(&[]), pending, 1000, 1);
    let got: BTreeSet<Words> = choices.contents.iter().copied().collect();
    assert_eq!(got.len(), choices.contents.len(), "contents are distinct");
    assert_eq!(got, expected.iter().map(|first| words(first)).collect());
    assert_eq!(choices.contents[0], words(&[]), "the first content is the durable one");
    assert!(!choices.capped);
}

#[test]
fn copies_survive_as_any_subset() {
    expect(&[copy(0, 1), copy(1, 2)], &[&[], &[1], &[0, 2], &[1, 2]]);
}

#[test]
fn a_word_copied_twice_holds_any_of_its_values() {
    expect(&[copy(0, 1), copy(0, 2), copy(1, 3)], &[&[], &[1], &[2], &[0, 3], &[1, 3], &[2, 3]]);
}

#[test]
fn publishes_keep_their_order() {
    expect(&[publish(0, 1), publish(1, 2), publish(0, 3)], &[&[], &[1], &[1, 2], &[3, 2]]);
}

#[test]
fn a_publish_brings_every_store_before_it() {
    let pending = [copy(0, 1), copy(1, 2), publish(2, 3), copy(3, 4)];
    expect(&pending, &[&[], &[1], &[0, 2], &[1, 2], &[1, 2, 3], &[1, 2, 3, 4]]);
}

#[test]
fn a_copy_after_a_publish_may_be_lost_or_overtaken_by_none() {
    let pending = [publish(0, 1), copy(1, 2), publish(0, 3)];
    expect(&pending, &[&[], &[1], &[1, 2], &[3, 2]]);
}

#[test]
fn equal_contents_are_one() {
    expect(&[publish(0, 1), publish(0, 0), copy(1, 0), publish(0, 1)], &[&[], &[1]]);
}

#[test]
fn a_fence_makes_durable_what_was_flushed_before_it_and_no_more() {
    let mut line = LineState::new(vec![words(&[])]);
    line.store(copy(0, 1));
    assert!(line.flush());
    line.store(copy(1, 2));
    assert!(line.fence());
    assert_eq!(line.base(), Some(&words(&[1])));
    assert_eq!(line.choices(100, 1).contents, [words(&[1]), words(&[1, 2])]);
    assert!(!line.fence(), "the second store was not flushed");
    assert!(!line.is_settled());
    assert!(line.flush() && !line.flush(), "a second flush covers nothing new");
    assert!(line.fence() && line.is_settled());
    assert_eq!(line.base(), Some(&words(&[1, 2])));
}

#[test]
fn a_flush_without_a_fence_promises_nothing() {
    let mut line = LineState::new(vec![words(&[7])]);
    line.store(publish(0, 8));
    line.flush();
    assert_eq!(line.choices(100, 1).contents, [words(&[7]), words(&[8])]);
}

#[test]
fn a_line_with_too_many_contents_is_sampled_and_says_so() {
    let pending: Vec<Pending> = (0..8).flat_map(|word| (1..=4).map(move |value| copy(word, value))).collect();
    let choices = contents(&words(&[]), &pending, 100, 1);
    assert!(choices.capped);
    assert_eq!(choices.contents[0], words(&[]));
    assert!(choices.contents.contains(&[4; 8]), "the content in which everything survived is always there");
    assert!(choices.contents.len() <= 100 && choices.contents.len() > 90);
    assert_eq!(choices, contents(&words(&[]), &pending, 100, 1), "by seed");
    assert_ne!(choices, contents(&words(&[]), &pending, 100, 2));
}

#[test]
fn a_line_written_unread_keeps_every_base_until_a_fence_or_a_reader_tells_them_apart() {
    let mut line = LineState::new(vec![words(&[1, 1]), words(&[1, 2]), words(&[3, 2])]);
    line.store(publish(1, 9));
    let got: BTreeSet<Words> = line.choices(100, 1).contents.iter().copied().collect();
    let all = [[1, 1], [1, 2], [3, 2], [1, 9], [3, 9]];
    assert_eq!(got, all.iter().map(|first| words(first)).collect());
    assert!(line.flush() && line.fence());
    assert_eq!(line.choices(100, 1).contents, [words(&[1, 9]), words(&[3, 9])]);
    assert!(line.base().is_none() && !line.is_settled());
    line.narrow(0b10, &words(&[3, 9]));
    assert!(line.is_settled() && line.base() == Some(&words(&[3, 9])));
}
