//! The images that saves, moves and scans ask for ahead are those that they read.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use bwtree::{Address, Bytes, Tree};

use crate::paged::{Images, options, save};

/// A save reads images that were prefetched. Few others are: changes of the same key may take less space together than the tree expects.
#[test]
fn a_save_reads_what_was_prefetched() {
    for by_page in [false, true] {
        let images = Arc::new(Images::default());
        let tree = Tree::<Bytes>::with_shelf(options(false), Arc::clone(&images) as _).unwrap();
        let key = |number: u32| format!("key {number:05}").into_bytes();
        (0..4000).for_each(|number| _ = tree.put(&key(number), &[1; 20]).unwrap());
        save(&tree, &images);
        (0..tree.stats().pids as u32 * 4).for_each(|page| _ = tree.evict(page, false, |_| true));
        let mut random = fastrand::Rng::with_seed(1);
        let (mut read, mut prefetched) = (0, 0);
        for round in 0..8u8 {
            (0..400)
                .for_each(|_| _ = tree.set(&key(random.u32(..4000)), Some(&[round; 20]), true, &()).unwrap());
            let mut kept = images.0.lock().unwrap();
            (kept.reads, kept.prefetched, kept.surprises) = (0, HashSet::new(), Vec::new());
            drop(kept);
            match by_page {
                false => {
                    let mut from = tree.prefetch_leaves(None, 7);
                    while let Some(key) = from {
                        from = tree.prefetch_leaves(Some(&key), 7);
                    }
                }
                true => assert!(tree.prefetch_pages(0, 1000) > 0),
            }
            save(&tree, &images);
            let kept = images.0.lock().unwrap();
            // The base that is about to be removed is read, too; this cannot be known before.
            let is_known = |address: &&Address| !address.0.get().is_multiple_of(5);
            assert_eq!(kept.surprises.iter().filter(is_known).count(), 0, "{round}: {:?}", kept.surprises);
            prefetched += kept.prefetched.len() as u64;
            read += kept.reads - kept.surprises.len() as u64;
        }
        assert!(read > 100 && prefetched <= read + read / 4, "{prefetched} for {read}");
    }
}

/// A move reads images that were prefetched, and none for leaves in memory.
#[test]
fn a_move_reads_what_was_prefetched() {
    let images = Arc::new(Images::default());
    let tree = Tree::<Bytes>::with_shelf(options(false), Arc::clone(&images) as _).unwrap();
    let key = |number: u32| format!("key {number:05}").into_bytes();
    (0..4000).for_each(|number| _ = tree.put(&key(number), &[1; 20]).unwrap());
    save(&tree, &images);
    (0..4000).step_by(100).for_each(|number| _ = tree.put(&key(number), &[2; 20]).unwrap());
    save(&tree, &images);
    let pages: Vec<u32> = (0..).take_while(|page| tree.image(*page).is_some()).collect();
    pages.iter().step_by(2).for_each(|page| _ = tree.evict(*page, false, |_| true));
    let mut kept = images.0.lock().unwrap();
    (kept.reads, kept.prefetched, kept.surprises) = (0, HashSet::new(), Vec::new());
    drop(kept);
    let mut moved = 0;
    for group in pages.chunks(7) {
        tree.prefetch_images(group);
        for low in group.iter().filter_map(|page| tree.low_key(*page)) {
            let keep = |image: &[u8], kind| images.keep(image, kind);
            moved += u32::from(tree.move_image(low.as_deref(), |_| true, keep).unwrap());
        }
    }
    let kept = images.0.lock().unwrap();
    assert!(moved > 20 && kept.surprises.is_empty(), "{moved}, {:?}", kept.surprises);
    assert!(kept.reads > 10 && kept.reads == kept.prefetched.len() as u64, "{} reads", kept.reads);
}

/// A scan of few leaves asks for nothing ahead. A longer one asks for all that it reads, and for nothing behind the end of its range.
#[test]
fn a_scan_reads_ahead() {
    let images = Arc::new(Images::default());
    let tree = Tree::<Bytes>::with_shelf(options(false), Arc::clone(&images) as _).unwrap();
    let key = |number: u32| format!("key {number:05}").into_bytes();
    (0..20_000).for_each(|number| _ = tree.put(&key(number), &[1; 20]).unwrap());
    save(&tree, &images);
    // Images of changes, and changes without an image.
    (0..20_000).step_by(200).for_each(|number| _ = tree.put(&key(number), &[2; 20]).unwrap());
    save(&tree, &images);
    (0..20_000).step_by(301).for_each(|number| _ = tree.put(&key(number), &[3; 20]).unwrap());
    let value = |number: u32| match () {
        () if number.is_multiple_of(301) => [3; 20],
        () if number.is_multiple_of(200) => [2; 20],
        () => [1; 20],
    };
    let ranges = [(0, 20_000, false), (137, 15_000, true), (3000, 3400, true), (19_000, 20_000, false)];
    for ((from, to, is_bounded), descends) in
        ranges.into_iter().flat_map(|range| [(range, false), (range, true)])
    {
        (0..tree.stats().pids as u32 * 4).for_each(|page| _ = tree.evict(page, true, |_| true));
        let mut kept = images.0.lock().unwrap();
        (kept.reads, kept.prefetched, kept.surprises) = (0, HashSet::new(), Vec::new());
        drop(kept);
        let (first, behind) = (key(from), key(to));
        let start = if from > 0 { Bound::Included(&first[..]) } else { Bound::Unbounded };
        let end = if is_bounded { Bound::Excluded(&behind[..]) } else { Bound::Unbounded };
        let mut expected = from..to;
        let scan = if descends { tree.range_descending(start, end) } else { tree.range(start, end) };
        for (found, kept) in scan {
            let number = if descends { expected.next_back() } else { expected.next() }.unwrap();
            assert_eq!((found.to_vec(), kept.to_vec()), (key(number), value(number).to_vec()));
        }
        assert!(expected.is_empty());
        let kept = images.0.lock().unwrap();
        let (asked, unasked) = (kept.prefetched.len() as u64, kept.surprises.len() as u64);
        // Four leaves, and each has at most two images.
        assert!((4..=8).contains(&unasked), "{from}, {descends}: {unasked}");
        assert!(
            asked > 5 && kept.reads == asked + unasked,
            "{from}, {descends}: {asked} asked for, {} reads",
            kept.reads
        );
    }
    (0..tree.stats().pids as u32 * 4).for_each(|page| _ = tree.evict(page, true, |_| true));
    images.0.lock().unwrap().prefetched.clear();
    let middle = key(5050);
    let ascending = tree.range(Bound::Included(&middle), Bound::Unbounded);
    let descending = tree.range_descending(Bound::Unbounded, Bound::Included(&middle));
    for short in [ascending, descending] {
        assert_eq!((short.take(20).count(), images.0.lock().unwrap().prefetched.len()), (20, 0));
    }
}
