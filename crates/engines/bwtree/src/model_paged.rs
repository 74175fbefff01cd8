//! Models of leaves that come and go: saves, evictions, page-ins and copies of records beside updates, and beside each other.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use crate::error::{Error, Result};
use crate::eviction::Eviction;
use crate::image::{Address, ImageKind};
use crate::model::{end, explore, merge, options, put, split};
use crate::node::Body;
use crate::omission::{Omission, omit};

use crate::paged::Shelf;
use crate::pairs::At;
use crate::sync::NUMBER;
use crate::table::ROOT;
use crate::tree::{Change, Tree};
use crate::words::Words;

/// Images, by address.
static IMAGES: Mutex<BTreeMap<u64, Vec<u8>>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// Images can be the bases of changes. The threads of a model are one thread of the test.
    static CAN_BE_BASES: Cell<bool> = const { Cell::new(true) };
    /// Number of reads that may still fail. `None`: no read fails.
    static FAILURES: Cell<Option<u32>> = const { Cell::new(None) };
    /// Number of merges, and of evictions that prevented them.
    static OUTCOMES: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

#[derive(Debug)]
struct InMemory;

impl Shelf for InMemory {
    fn read(&self, address: Address) -> Result<Vec<u8>> {
        if let Some(left) = FAILURES.get() {
            assert!(left > 0, "a leaf that cannot be read is read again and again");
            FAILURES.set(Some(left - 1));
            return Err(Error::Unreadable { why: "the disk fails".into() });
        }
        let images = IMAGES.lock().unwrap();
        images.get(&address.0.get()).cloned().ok_or(Error::Unreadable { why: "there is no image".into() })
    }

    fn read_part(&self, address: Address, part: std::ops::Range<usize>) -> Result<Vec<u8>> {
        Ok(self.read(address)?.get(part).unwrap_or_default().to_vec())
    }

    fn first_piece(&self, _: Address) -> usize {
        1
    }

    fn is_kept(&self, _: Address) -> bool {
        CAN_BE_BASES.get()
    }
}

fn keep(image: &[u8], _: ImageKind) -> Result<Address> {
    let mut images = IMAGES.lock().unwrap();
    let address = images.last_key_value().map_or(1, |(last, _)| last + 1);
    images.insert(address, image.to_vec());
    Ok(Address(address.try_into().unwrap()))
}

/// Saves both leaves.
fn save(tree: &Tree<Words>) {
    let next = tree.save(None, keep).unwrap().next;
    tree.save(next.as_ref(), keep).unwrap();
}

/// Returns the number of evicted leaves.
fn evict_all(tree: &Tree<Words>) -> usize {
    (0..4).filter(|page| matches!(tree.evict(*page, true, |_| true), Eviction::Done(_))).count()
}

fn evict(tree: &Tree<Words>) {
    evict_all(tree);
}

fn save_and_evict(tree: &Tree<Words>) {
    save(tree);
    evict_all(tree);
}

fn page_in(tree: &Tree<Words>) {
    assert!(tree.update(&2, |_| Change::<u64>::Keep).unwrap());
}

/// A tree of two leaves, with the keys 1 to 4.
fn two_leaves() -> Tree<Words> {
    let tree = Tree::<Words>::with_shelf(options(), std::sync::Arc::new(InMemory)).unwrap();
    put(&tree, &[1, 2, 3, 4]);
    split(&tree, 1);
    tree
}

type Work = fn(&Tree<Words>);

/// Runs `before` alone, then both works at once, and `judge` at the end. The works change their threads, because loom does not run every load
/// before an exchange of another thread.
fn beside(
    name: &str,
    before: Work,
    works: [Work; 2],
    judge: impl Fn(&Tree<Words>) + Copy + Send + Sync + 'static,
) {
    for [first, second] in [works, [works[1], works[0]]] {
        explore(name, move || {
            let tree = Arc::new(two_leaves());
            before(&tree);
            let other = tree.clone();
            let other = thread::spawn(move || {
                NUMBER.with(|own| own.set(1));
                second(&other);
            });
            first(&tree);
            other.join().unwrap();
            tree.reclaim();
            judge_candidates(&tree);
            judge(&tree);
        });
    }
}

/// As [`beside`]. At the end the tree has the keys `after`.
fn model(name: &str, before: Work, first: Work, second: Work, after: &'static [u64]) {
    beside(name, before, [first, second], move |tree| end(tree, after));
}

/// V1.
fn judge_candidates(tree: &Tree<Words>) {
    for page in (0..4).filter(|page| tree.residence(*page).is_some()) {
        assert_eq!(tree.candidates.next(page), Some(page), "the eviction skips a leaf");
    }
}

#[test]
fn an_eviction_loses_no_update() {
    model("evict, update", save, evict, |tree| put(tree, &[5]), &[1, 2, 3, 4, 5]);
}

#[test]
fn a_save_beside_an_update_does_not_make_the_leaf_clean_without_it() {
    model("save and evict, update", |_| (), save_and_evict, |tree| put(tree, &[5]), &[1, 2, 3, 4, 5]);
}

#[test]
fn two_readers_page_the_same_leaf_in() {
    model("two page-ins", save_and_evict, page_in, page_in, &[1, 2, 3, 4]);
}

#[test]
fn a_page_in_and_an_eviction_of_the_same_leaf_disturb_no_reader() {
    model("page-in, evict", save_and_evict, page_in, evict, &[1, 2, 3, 4]);
}

#[test]
fn an_update_pages_the_leaf_in_while_its_image_is_moved() {
    let moves: Work = |tree| _ = tree.move_image(None, |_| true, keep).unwrap();
    model("move, update", save_and_evict, moves, |tree| put(tree, &[0]), &[0, 1, 2, 3, 4]);
}

/// Changes a record in each leaf, so that evicted leaves keep changes.
fn save_change_and_evict(tree: &Tree<Words>) {
    save(tree);
    put(tree, &[1, 3]);
    evict_all(tree);
    assert!(tree.unsaved_bytes() > 0);
}

#[test]
fn an_eviction_that_keeps_changes_loses_no_update() {
    let before: Work = |tree| {
        save(tree);
        put(tree, &[1, 3]);
    };
    model("evict with changes, update", before, evict, |tree| put(tree, &[5]), &[1, 2, 3, 4, 5]);
}

#[test]
fn kept_changes_are_saved_while_the_leaf_is_paged_in() {
    model("save of changes, page-in", save_change_and_evict, save, page_in, &[1, 2, 3, 4]);
    model("save of changes, update", save_change_and_evict, save, |tree| put(tree, &[0]), &[0, 1, 2, 3, 4]);
}

/// Sets a key in each leaf. Evicted leaves are not read.
fn set(tree: &Tree<Words>) {
    for key in [0, 5] {
        tree.set(&key, Some(&(key * 10)), false, &()).unwrap();
    }
}

#[test]
fn late_changes_beside_a_page_in_a_save_and_a_move_are_kept() {
    model("late change, page-in", save_and_evict, set, page_in, &[0, 1, 2, 3, 4, 5]);
    model("late change, save", save_change_and_evict, set, save, &[0, 1, 2, 3, 4, 5]);
    let moves: Work = |tree| _ = tree.move_image(None, |_| true, keep).unwrap();
    model("late change, move", save_and_evict, set, moves, &[0, 1, 2, 3, 4, 5]);
    let removal: Work = |tree| _ = tree.set(&1, None, false, &()).unwrap();
    model("late removal, late change", save_and_evict, removal, set, &[0, 2, 3, 4, 5]);
    let before: Work = |tree| {
        save(tree);
        evict_all(tree);
        set(tree);
    };
    model("save of late changes, update", before, save, |tree| put(tree, &[6]), &[0, 1, 2, 3, 4, 5, 6]);
}

/// A save that rewrites evicted leaves, because their images cannot be bases.
#[test]
fn late_changes_beside_a_rewrite_are_kept() {
    let before: Work = |tree| {
        save_and_evict(tree);
        // A larger leaf would be paged in to be split.
        tree.set(&4, None, false, &()).unwrap();
        tree.set(&4, Some(&40), false, &()).unwrap();
    };
    let rewrite: Work = |tree| {
        CAN_BE_BASES.set(false);
        save(tree);
        CAN_BE_BASES.set(true);
    };
    let change: Work = |tree| _ = tree.set(&3, None, false, &()).unwrap();
    model("rewrite, late removal", before, rewrite, change, &[1, 2, 4]);
    let grow: Work = |tree| _ = tree.set(&5, Some(&50), false, &()).unwrap();
    model("rewrite, late change", before, rewrite, grow, &[1, 2, 3, 4, 5]);
    model("rewrite, page-in", before, rewrite, page_in, &[1, 2, 3, 4]);
    model("rewrite, update", before, rewrite, |tree| put(tree, &[0]), &[0, 1, 2, 3, 4]);
    model_of_copies(
        "rewrite, lookup",
        before,
        [rewrite, |tree| assert_eq!(tree.get(&2), Some(20))],
        Some(20),
    );
}

/// A late change to an evicted leaf that is exchanged for another state in between is not lost.
#[test]
fn late_changes_beside_an_eviction_are_kept() {
    model("late change, evict", save, set, evict, &[0, 1, 2, 3, 4, 5]);
}

/// As [`beside`]. At the end key 2 has this value.
fn model_of_copies(name: &str, before: Work, works: [Work; 2], value: Option<u64>) {
    beside(name, before, works, move |tree| {
        // From the copy, if there is one, and then from the leaf.
        assert_eq!(tree.get(&2), value);
        save(tree);
        assert_eq!(tree.get(&2), value);
        assert_eq!(tree.iter().find(|(key, _)| *key == 2), value.map(|value| (2, value)));
        let check = tree.check();
        assert!(check.problems.is_empty(), "{check:?}");
    });
}

/// Sets key 2 without a read of its leaf.
fn set_copied(tree: &Tree<Words>) {
    tree.set(&2, Some(&7), false, &()).unwrap();
}

/// Evicts both leaves, and makes a copy of key 2. The next lookup in its leaf makes another one, because a lookup in the other leaf comes
/// before.
fn copy(tree: &Tree<Words>) {
    save_and_evict(tree);
    assert_eq!((tree.get(&2), tree.get(&3)), (Some(20), Some(30)));
}

fn look_up(tree: &Tree<Words>) {
    assert!([20, 7].contains(&tree.get(&2).unwrap()));
}

fn read_other(tree: &Tree<Words>) {
    assert_eq!(tree.get(&1), Some(10));
}

fn drop_copies(tree: &Tree<Words>) {
    (0..4).for_each(|page| _ = tree.drop_copies(page));
}

#[test]
fn copies_beside_late_changes_are_never_stale() {
    model_of_copies("copy, late change", save_and_evict, [look_up, set_copied], Some(7));
    model_of_copies("copy, late change of a copied key", copy, [look_up, set_copied], Some(7));
    model_of_copies("copy of another key, late change", copy, [read_other, set_copied], Some(7));
    let removal: Work = |tree| _ = tree.set(&2, None, false, &()).unwrap();
    model_of_copies("copy of another key, late removal", copy, [read_other, removal], None);
}

#[test]
fn copies_beside_saves_moves_and_the_eviction_are_never_stale() {
    let change: Work = |tree| {
        set_copied(tree);
        read_other(tree);
    };
    // The next lookup in the leaf is the first since one in the other leaf, so it reads only one image.
    model_of_copies("a late change, save", copy, [set_copied, save], Some(7));
    model_of_copies("copies and a late change, save", copy, [change, save], Some(7));
    let moves: Work = |tree| _ = tree.move_image(None, |_| true, keep).unwrap();
    model_of_copies("copies and a late change, move", copy, [change, moves], Some(7));
    model_of_copies("copies and a late change, drop", copy, [change, drop_copies], Some(7));
    model_of_copies("copies, look", save_and_evict, [read_other, look], Some(20));
    model_of_copies("two copies, drop", copy, [read_other, drop_copies], Some(20));
}

/// A late change that leaves the copy of its key, and a lookup that reads the image which does not have it.
#[test]
fn a_stale_copy_is_noticed() {
    for omission in [Omission::Copy, Omission::Digest] {
        omit(omission);
        let outcome =
            catch_unwind(AssertUnwindSafe(copies_beside_saves_moves_and_the_eviction_are_never_stale));
        omit(None);
        assert!(outcome.is_err(), "without {omission:?} all is well");
    }
}

/// The eviction looks at all pages, and from then on skips those that it found evicted.
fn look(tree: &Tree<Words>) {
    let mut from = 0;
    while let Some((page, _)) = tree.candidate(from) {
        from = page + 1;
    }
}

#[test]
fn the_eviction_finds_a_leaf_that_is_paged_in_while_it_looks() {
    model("look, page-in", save_and_evict, look, page_in, &[1, 2, 3, 4]);
    model("look, update", save_and_evict, look, |tree| put(tree, &[5]), &[1, 2, 3, 4, 5]);
    model("look, late change", save_and_evict, look, set, &[0, 1, 2, 3, 4, 5]);
}

/// An eviction that clears the bit of a page without another look skips a leaf that came meanwhile.
#[test]
fn an_eviction_without_a_second_look_is_noticed() {
    omit(Omission::Candidate);
    let outcome = catch_unwind(AssertUnwindSafe(the_eviction_finds_a_leaf_that_is_paged_in_while_it_looks));
    omit(None);
    assert!(outcome.is_err(), "without {:?} all is well", Omission::Candidate);
}

/// An eviction that does not compare the leaf with its image loses an update.
#[test]
fn an_eviction_of_a_dirty_leaf_is_noticed() {
    omit(Omission::Clean);
    let outcome = catch_unwind(AssertUnwindSafe(an_eviction_loses_no_update));
    omit(None);
    assert!(outcome.is_err(), "without {:?} all is well", Omission::Clean);
}

/// A merge of two leaves beside an eviction, while no image can be read: the merge is complete, or it was not begun.
#[test]
fn a_merge_beside_an_eviction_needs_no_read() {
    let before: Work = |tree| {
        tree.delete(&2).unwrap();
        tree.delete(&4).unwrap();
        save(tree);
        FAILURES.set(Some(0));
    };
    let judge = |tree: &Tree<Words>| {
        FAILURES.set(None);
        let [merged, evicted] = OUTCOMES.get();
        let merges = tree.stats().merges;
        OUTCOMES.set([merged + merges, evicted + u64::from(merges == 0)]);
        end(tree, &[1, 3]);
    };
    beside("merge, evict", before, [|tree| merge(tree, 3), evict], judge);
    let outcomes = OUTCOMES.get();
    assert!(outcomes.iter().all(|count| *count > 0), "merges, and evictions before them: {outcomes:?}");
}

/// An eviction beside a merge takes away the left leaf.
#[test]
fn an_eviction_beside_a_merge_is_noticed() {
    omit(Omission::Merging);
    let outcome = catch_unwind(AssertUnwindSafe(a_merge_beside_an_eviction_needs_no_read));
    omit(None);
    FAILURES.set(None);
    let why = outcome.unwrap_err();
    let why = why.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(why.contains("an evicted leaf is merged"), "without {:?}: {why}", Omission::Merging);
}

/// The only child of the root is an evicted leaf. The root does not shrink until the leaf is in memory.
#[test]
fn a_shrink_reads_no_image() {
    // One thread: loom only runs it.
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(|| {
        let tree = two_leaves();
        tree.delete(&1).unwrap();
        tree.delete(&4).unwrap();
        let visit = tree.visit();
        let level = || visit.load(ROOT).unwrap().level();
        let root = visit.load(ROOT).unwrap();
        let announced =
            visit.delta(root, visit.draw(root.lsn()), root.bytes(), Body::IndexMerging { key: 3 });
        assert!(visit.append(ROOT, root, announced, Omission::Structure));
        assert_eq!(visit.merge_pages(0, &3), Some(ROOT));
        visit.maintain(visit.leaf(At(&1)).0);
        tree.save(None, keep).unwrap();
        assert_eq!(evict_all(&tree), 1);
        FAILURES.set(Some(0));
        visit.maintain(ROOT);
        assert_eq!((level(), tree.stats().root_shrinks), (1, 0));
        FAILURES.set(None);
        page_in(&tree);
        visit.maintain(ROOT);
        assert_eq!((level(), tree.stats().root_shrinks), (0, 1));
        drop(visit);
        end(&tree, &[2, 3]);
    });
}
