//! Trees whose leaves are saved, evicted and restored, against a map.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::{Bound, Range};
use std::sync::{Arc, Mutex};

use bwtree::guide::PIECE;
use bwtree::{Address, Bytes, Error, Eviction, ImageKind, Late, Options, RestoredLeaf, Shelf, Tree};

/// Images in memory.
#[derive(Debug, Default)]
pub struct Images(pub Mutex<Kept>);

#[derive(Debug, Default)]
pub struct Kept {
    images: HashMap<Address, Vec<u8>>,
    newest: u64,
    fails: bool,
    pub reads: u64,
    /// Number of reads of parts of images.
    parts: u64,
    garbles_parts: bool,
    /// Images that will be read soon, and that were read although the tree did not say so.
    pub prefetched: HashSet<Address>,
    pub surprises: Vec<Address>,
    /// Number of images of each kind.
    kinds: [u64; 2],
}

impl Shelf for Images {
    fn read(&self, address: Address) -> bwtree::Result<Vec<u8>> {
        let mut images = self.0.lock().unwrap();
        images.reads += 1;
        if !images.prefetched.contains(&address) {
            images.surprises.push(address);
        }
        if images.fails {
            return Err(Error::Unreadable { why: "as the test wishes".into() });
        }
        Ok(images.images[&address].clone())
    }

    fn read_part(&self, address: Address, part: Range<usize>) -> bwtree::Result<Vec<u8>> {
        let mut read = self.read(address)?.get(part).unwrap_or_default().to_vec();
        let mut images = self.0.lock().unwrap();
        images.parts += 1;
        if images.garbles_parts {
            // The values, but not the lengths.
            read.iter_mut().filter(|byte| **byte == 7).for_each(|byte| *byte = 8);
        }
        Ok(read)
    }

    fn first_piece(&self, address: Address) -> usize {
        address.0.get() as usize * 977 % PIECE + 1
    }

    fn prefetch(&self, addresses: &mut [Address]) {
        self.0.lock().unwrap().prefetched.extend(addresses.iter());
    }

    fn size(&self, address: Address) -> usize {
        self.0.lock().unwrap().images[&address].len()
    }

    fn is_kept(&self, address: Address) -> bool {
        // As if some images were about to be removed.
        !address.0.get().is_multiple_of(5)
    }
}

impl Images {
    pub fn keep(&self, image: &[u8], kind: ImageKind) -> Result<Address, Error> {
        let mut images = self.0.lock().unwrap();
        images.kinds[kind as usize] += 1;
        images.newest += 1;
        let address = Address(images.newest.try_into().unwrap());
        images.images.insert(address, image.to_vec());
        Ok(address)
    }

    fn fail(&self, fails: bool) {
        self.0.lock().unwrap().fails = fails;
    }
}

pub type Pages = Vec<RestoredLeaf<Box<[u8]>>>;

/// Saves all leaves, in key order.
pub fn save(tree: &Tree<Bytes>, images: &Images) -> Pages {
    let (mut leaves, mut from) = (Vec::new(), None::<Box<[u8]>>);
    loop {
        let saved = tree.save(from.as_deref(), |image, kind| images.keep(image, kind)).unwrap();
        let bwtree::SavedLeaf { image, records, is_counted, bytes, next } = saved;
        leaves.push(RestoredLeaf { low: from, image, records, is_counted, bytes });
        from = next;
        if from.is_none() {
            return leaves;
        }
    }
}

fn evict(tree: &Tree<Bytes>, one_in: u32, random: &mut fastrand::Rng) -> usize {
    let pages = tree.stats().pids as u32 * 4;
    let chosen: Vec<u32> = (0..pages).filter(|_| random.u32(..one_in) == 0).collect();
    let mut evict = |page| {
        tree.drop_copies(page);
        matches!(tree.evict(page, random.bool(), |_| true), Eviction::Done(_))
    };
    chosen.into_iter().filter(|page| evict(*page)).count()
}

pub fn options(is_tiny: bool) -> Options {
    let usual = if is_tiny { Options::tiny() } else { Options::of_pages(4096) };
    Options { weighs_records: true, ..usual }
}

fn compare(tree: &Tree<Bytes>, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut cursor = tree.iter();
    let pairs: Vec<_> = cursor.by_ref().map(|(key, value)| (key.into_vec(), value)).collect();
    assert!(cursor.take_error().is_none());
    assert!(pairs.iter().map(|(key, value)| (key, value)).eq(model));
    let down = tree.range_descending(Bound::Unbounded, Bound::Unbounded);
    assert!(down.map(|(key, value)| (key.into_vec(), value)).eq(pairs.into_iter().rev()));
    assert_eq!(tree.len(), model.len() as u64);
    let check = tree.check();
    assert_eq!(check.problems, Vec::<String>::new());
    assert_eq!((check.records, check.is_quiet), (model.len() as u64, true));
}

/// A lookup in an evicted leaf keeps a copy of one record. The copy serves later lookups, and lasts while it is used.
#[test]
fn lookups_in_evicted_leaves_keep_copies_of_single_records() {
    let images = Arc::new(Images::default());
    let tree = Tree::<Bytes>::with_shelf(options(false), Arc::clone(&images) as _).unwrap();
    let key = |number: u32| format!("key {number:05}").into_bytes();
    let keys = 4000;
    (0..keys).for_each(|number| _ = tree.put(&key(number), &key(number)).unwrap());
    save(&tree, &images);
    let pages = || 0..tree.stats().pids as u32 * 4;
    let evict = || pages().for_each(|page| _ = tree.evict(page, false, |_| true));
    evict();
    let leaves = tree.check().evicted;
    let reads = || std::mem::take(&mut images.0.lock().unwrap().reads);
    let drop_copies = || pages().filter(|page| tree.drop_copies(*page)).count();
    let get = |number, value: Option<&[u8]>| assert_eq!(tree.get(&key(number)).as_deref(), value);
    reads();
    assert!(leaves > 20, "{leaves}");
    // At most one key of each leaf.
    let wanted = || (0..keys).step_by(90);
    let count = wanted().count() as u64;
    let absent = |number| [&key(number)[..], b" absent"].concat();
    let get_all = || wanted().for_each(|number| get(number, Some(&key(number))));
    let get_absent = || wanted().for_each(|number| assert_eq!(tree.get(&absent(number)), None));
    // A lookup reads one piece of an image, or two if the record is in both. Some images have only one piece.
    let are_single = |reads: u64| (count..=count + count / 4).contains(&reads);
    for get in [&get_all as &dyn Fn(), &get_absent] {
        get();
        assert!(are_single(reads()) && tree.check().evicted == leaves);
        let parts = std::mem::take(&mut images.0.lock().unwrap().parts);
        assert!(parts > count / 3, "{parts} of {count}");
    }
    get_all();
    get_absent();
    assert_eq!(reads(), 0);
    // They were used, so they last one more round.
    assert_eq!(drop_copies(), 0);
    get(0, Some(&key(0)));
    assert_eq!(reads(), 0);
    assert!(drop_copies() > 10);
    get(0, Some(&key(0)));
    assert_eq!(reads(), 0);
    // A late change is newer than the copy, also after it is saved.
    assert_eq!(tree.set(&key(0), Some(b"new"), false, &()).unwrap(), None);
    get(0, Some(b"new"));
    assert_eq!(reads(), 0);
    save(&tree, &images);
    get(0, Some(b"new"));
    assert_eq!(tree.set(&key(90), None, false, &()).unwrap(), None);
    get(90, None);
    compare(
        &tree,
        &(0..keys)
            .filter(|number| *number != 90)
            .map(|number| (key(number), if number == 0 { b"new".to_vec() } else { key(number) }))
            .collect(),
    );
    // A leaf that lookups read in a row is read twice.
    save(&tree, &images);
    evict();
    assert_eq!(tree.check().evicted, leaves);
    reads();
    for number in 200..300 {
        get(number, Some(&key(number)));
    }
    assert!(tree.check().evicted < leaves);
    assert!(reads() <= 2 * (leaves - tree.check().evicted) + 2);
}

/// Leaves with changes that are saved or not, or that remove records, are read piece by piece, as their digests and guides say. A piece with
/// a wrong checksum is not believed.
#[test]
fn lookups_read_pieces_of_leaves_with_changes() {
    let mut random = fastrand::Rng::with_seed(9);
    let images = Arc::new(Images::default());
    let tree = Tree::<Bytes>::with_shelf(options(false), Arc::clone(&images) as _).unwrap();
    let key = |number: u32| format!("key {number:05}").into_bytes();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = (0..4000).map(|n| (key(n), vec![7; 60])).collect();
    model.iter().for_each(|(key, value)| _ = tree.put(key, value).unwrap());
    let evict = |may_keep| {
        let pages = || 0..tree.stats().pids as u32 * 4;
        pages().for_each(|page| _ = tree.evict(page, may_keep, |_| true));
        // Twice, because copies that were used last longer.
        (0..2).for_each(|_| pages().for_each(|page| _ = tree.drop_copies(page)));
    };
    for round in 0..12 {
        save(&tree, &images);
        evict(false);
        for _ in 0..200 {
            let key = key(random.u32(..4000));
            match random.u8(..4) {
                // Without a read of the leaf.
                0 => {
                    tree.set(&key, Some(b"set"), true, &()).unwrap();
                    model.insert(key, b"set".to_vec());
                }
                1 => assert_eq!(tree.put(&key, b"put"), Ok(model.insert(key, b"put".to_vec()).is_some())),
                _ => assert_eq!(tree.delete(&key), Ok(model.remove(&key).is_some())),
            }
        }
        if round % 2 == 0 {
            save(&tree, &images);
        }
        evict(true);
        images.0.lock().unwrap().garbles_parts = round % 4 == 3;
        // Lookups in a leaf are far from each other, so that the leaf is not paged in.
        for _ in 0..12 {
            for number in (0..4000).step_by(67).map(|from| from + random.u32(..67)).filter(|n| *n < 4000) {
                let key = key(number);
                assert_eq!(tree.get(&key).as_ref(), model.get(&key), "{round}: {number}");
            }
        }
        images.0.lock().unwrap().garbles_parts = false;
    }
    let parts = images.0.lock().unwrap().parts;
    assert!(parts > 500, "{parts}");
    compare(&tree, &model);
}

/// Each step of a scan returns the pair that is next at that moment, while its leaves are changed, saved (which moves changes into the base
/// page), evicted and read again.
#[test]
fn a_scan_goes_on_while_its_leaves_are_changed_saved_evicted_and_read() {
    let mut random = fastrand::Rng::with_seed(5);
    let key = |number: u32| format!("key {number:05}").into_bytes();
    for round in 0..60 {
        let (keys, descends) = (random.u32(1..300), random.bool());
        let images = Arc::new(Images::default());
        let tree = Tree::<Bytes>::with_shelf(options(round % 2 == 0), Arc::clone(&images) as _).unwrap();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let change = |model: &mut BTreeMap<_, _>, random: &mut fastrand::Rng| {
            let (key, value) = (key(random.u32(..keys)), vec![random.u8(..); random.usize(..30)]);
            if random.u8(..4) == 0 {
                tree.delete(&key).unwrap();
                model.remove(&key);
            } else {
                tree.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        };
        (0..2 * keys).for_each(|_| change(&mut model, &mut random));
        let (from, to) = (key(random.u32(..keys)), key(random.u32(..keys)));
        let (from, to) = (from.clone().min(to.clone()), from.max(to));
        let bounds = (Bound::Excluded(&from[..]), Bound::Included(&to[..]));
        let mut cursor = match descends {
            false => tree.range(bounds.0, bounds.1),
            true => tree.range_descending(bounds.0, bounds.1),
        };
        let mut rest = (bounds.0.map(<[u8]>::to_vec), bounds.1.map(<[u8]>::to_vec));
        loop {
            for _ in 0..random.usize(..4) {
                match random.u8(..4) {
                    0 => _ = save(&tree, &images),
                    1 => _ = evict(&tree, 2, &mut random),
                    _ => change(&mut model, &mut random),
                }
            }
            let is_over =
                matches!(&rest, (Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) if a >= b);
            let mut wanted: Vec<_> = match is_over {
                true => Vec::new(),
                false => model.range(rest.clone()).collect(),
            };
            if descends {
                wanted.reverse();
            }
            let is_ended = wanted.is_empty();
            // All records of a visit are of one moment.
            let (max, stops) = (random.usize(1..9), random.usize(1..9));
            let mut found = Vec::new();
            while found.is_empty() && cursor.place() {
                cursor.visit(max, |key, value| {
                    found.push((key.to_vec(), value.to_vec()));
                    found.len() < stops
                });
            }
            assert!(found.len() <= max.min(stops));
            assert!(found.iter().map(|(key, value)| (key, value)).eq(wanted.into_iter().take(found.len())));
            assert!(cursor.take_error().is_none());
            let Some((key, _)) = found.pop() else {
                assert!(is_ended);
                break;
            };
            *if descends { &mut rest.1 } else { &mut rest.0 } = Bound::Excluded(key);
        }
        compare(&tree, &model);
    }
}

/// A save of an evicted leaf with many late changes writes a whole image without the leaf in memory. A leaf that has become too large or too
/// small is paged in.
#[test]
fn a_save_rewrites_evicted_leaves() {
    let images = Arc::new(Images::default());
    let tree = Tree::<Bytes>::with_shelf(options(false), Arc::clone(&images) as _).unwrap();
    let key = |number: u32| format!("key {number:05}").into_bytes();
    let mut model: BTreeMap<_, _> = (0..4000).map(|number| (key(number), key(number))).collect();
    model.iter().for_each(|(key, value)| _ = tree.put(key, value).unwrap());
    let save_all = || {
        save(&tree, &images);
        std::mem::take(&mut images.0.lock().unwrap().kinds)
    };
    save_all();
    (0..tree.stats().pids as u32 * 4).for_each(|page| _ = tree.evict(page, false, |_| true));
    let leaves = tree.check().evicted;
    let mut set = |number, value: Option<&[u8]>| {
        tree.set(&key(number), value, true, &()).unwrap();
        match value {
            Some(value) => model.insert(key(number), value.to_vec()),
            None => model.remove(&key(number)),
        };
    };
    (0..4000).step_by(2).for_each(|number| set(number, Some(&[5; 20])));
    let kinds = save_all();
    assert_eq!(tree.check().evicted, leaves);
    assert!(kinds[ImageKind::Whole as usize] + 1 >= leaves, "{kinds:?} of {leaves}");
    // One leaf becomes large.
    (0..100).step_by(4).for_each(|number| set(number, Some(&[7; 200])));
    save_all();
    let evicted = tree.check().evicted;
    assert!(evicted < leaves && evicted + 4 > leaves, "{evicted} of {leaves}");
    // The next leaves become small.
    (1000..1300).for_each(|number| set(number, None));
    save_all();
    assert!(tree.check().evicted < evicted);
    compare(&tree, &model);
}

/// A lookup in an image without the last record of its leaf reports the damage, also for a key that the image has.
#[test]
fn a_lookup_refuses_an_image_with_fewer_records_than_its_leaf() {
    let images = Arc::new(Images::default());
    let tree = Tree::<Bytes>::with_shelf(options(false), Arc::clone(&images) as _).unwrap();
    let key = |number: u32| format!("key {number:05}").into_bytes();
    (0..1000).for_each(|number| _ = tree.put(&key(number), &[1; 20]).unwrap());
    let first = save(&tree, &images)[0].image.address;
    (0..tree.stats().pids as u32 * 4).for_each(|page| _ = tree.evict(page, false, |_| true));
    {
        let mut kept = images.0.lock().unwrap();
        let image = kept.images.get_mut(&first).unwrap();
        let number = |image: &[u8], at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        let records = number(image, 0) - 1;
        let end = (0..records).fold(4, |at, _| at + 8 + (number(image, at) + number(image, at + 4)) as usize);
        image.truncate(end);
        image[..4].copy_from_slice(&records.to_le_bytes());
    }
    let found = tree.look_up(&key(0), |_| ());
    assert!(matches!(found, Err(Error::Unreadable { .. })), "{found:?}");
    assert!(tree.look_up(&key(999), |_| ()).unwrap().is_some());
}

/// Between a plan and its changes, leaves split, merge, get other page numbers and are evicted.
#[test]
fn a_plan_finds_the_leaves_of_its_keys_after_structure_changes() {
    // A plan of more than 4096 changes does not use the leaves that it found.
    for (seed, is_tiny, keys, planned, rounds) in
        [(1, true, 300, 1..40, 300), (2, false, 3000, 1..40, 300), (3, false, 20_000, 5000..6000, 10)]
    {
        let mut random = fastrand::Rng::with_seed(seed);
        let images = Arc::new(Images::default());
        let tree = Tree::<Bytes>::with_shelf(options(is_tiny), Arc::clone(&images) as _).unwrap();
        let mut model = BTreeMap::new();
        let key = |number: u32| format!("key {number:05}").into_bytes();
        let mut late = 0;
        for _ in 0..rounds {
            let value = |random: &mut fastrand::Rng| vec![random.u8(..); random.usize(..40)];
            let count = random.usize(planned.clone());
            let mut numbers = BTreeSet::new();
            while numbers.len() < count {
                numbers.insert(random.u32(..keys));
            }
            let mut changes: Vec<_> = numbers
                .into_iter()
                .map(|number| (key(number).into(), random.bool().then(|| value(&mut random))))
                .collect();
            changes.sort();
            let plan = tree.plan(&changes).unwrap();
            for _ in 0..random.u32(..6) {
                let from = random.u32(..keys);
                let is_put = random.bool();
                for key in (from..keys.min(from + keys / 8)).map(key) {
                    if is_put {
                        let value = value(&mut random);
                        tree.put(&key, &value).unwrap();
                        model.insert(key, value);
                    } else {
                        tree.delete(&key).unwrap();
                        model.remove(&key);
                    }
                }
                save(&tree, &images);
                evict(&tree, 2, &mut random);
                tree.reclaim();
            }
            let mut found = Vec::new();
            plan.make(|was_there| found.push(was_there)).unwrap();
            assert_eq!(found.len(), changes.len());
            late += found.iter().filter(|found| found.is_none()).count();
            for ((key, value), found) in changes.into_iter().zip(found) {
                let was_there = match value {
                    Some(value) => model.insert(key.into(), value).is_some(),
                    None => model.remove(&*key).is_some(),
                };
                assert!(found.is_none_or(|found| found == was_there));
            }
        }
        compare(&tree, &model);
        assert_eq!(tree.check().problems, Vec::<String>::new());
        let stats = tree.stats();
        assert!(late > 100 && stats.splits > 100 && stats.merges > 50, "{late} {stats:?}");
    }
}

/// All keys of a plan are in one leaf at first. It splits while the changes are made.
#[test]
fn a_plan_of_ascending_keys_follows_the_splits_from_the_root() {
    let tree = Tree::<Bytes>::with_shelf(options(false), Arc::new(Images::default()) as _).unwrap();
    let key = |number: u32| format!("key {number:05}").into_bytes();
    (0..2000).for_each(|number| _ = tree.put(&key(number), &[1; 20]).unwrap());
    let before = tree.stats();
    let changes: Vec<_> = (2000..6000).map(|number| (key(number).into(), Some(vec![2; 20]))).collect();
    tree.plan(&changes).unwrap().make(|_| ()).unwrap();
    let after = tree.stats();
    assert!(after.splits > before.splits + 20, "{after:?}");
    assert!(after.helped < before.helped + 20, "the descents completed splits that were complete: {after:?}");
    assert_eq!(tree.len(), 6000);
}

fn churn(seed: u64, is_tiny: bool, steps: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let images = Arc::new(Images::default());
    let mut tree = Tree::<Bytes>::with_shelf(options(is_tiny), Arc::clone(&images) as _).unwrap();
    let mut model = BTreeMap::new();
    let (keys, mut evicted, mut unsaved, mut moved) = (if is_tiny { 60 } else { 2000 }, 0, 0, 0);
    let (mut late, mut restored, mut together) = (0, 0, 0);
    for step in 0..steps {
        let key = format!("key {:04}", random.u32(..keys)).into_bytes();
        match random.u32(..15) {
            14 => {
                let changes: BTreeMap<Vec<u8>, Option<Vec<u8>>> = (0..random.usize(1..20))
                    .map(|_| {
                        let key = format!("key {:04}", random.u32(..keys)).into_bytes();
                        (key, random.bool().then(|| vec![random.u8(..); random.usize(..40)]))
                    })
                    .collect();
                let all: Vec<Late<'_>> =
                    changes.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
                let mut rest = &all[..];
                while let [(key, value), ..] = rest {
                    let done = tree.set_late(rest).unwrap();
                    together = together.max(done);
                    if done == 0 {
                        tree.set(key, *value, false, &()).unwrap();
                    }
                    rest = &rest[done.max(1)..];
                }
                for (key, value) in changes {
                    match value {
                        Some(value) => _ = model.insert(key, value),
                        None => _ = model.remove(&key),
                    }
                }
            }
            10..=13 => {
                let value = random.bool().then(|| vec![random.u8(..); random.usize(..40)]);
                let found = tree.set(&key, value.as_deref(), random.u32(..8) == 0, &()).unwrap();
                let was_there = match value {
                    Some(value) => model.insert(key, value).is_some(),
                    None => model.remove(&key).is_some(),
                };
                late += u64::from(found.is_none());
                assert!(found.is_none_or(|found| found == was_there));
            }
            0..=4 => {
                let value = vec![random.u8(..); random.usize(..40)];
                let was_there = tree.put(&key, &value).unwrap();
                assert_eq!(was_there, model.insert(key, value).is_some());
            }
            5..=7 => assert_eq!(tree.delete(&key).unwrap(), model.remove(&key).is_some()),
            _ => assert_eq!(tree.get(&key), model.get(&key).cloned()),
        }
        if step % 37 == 0 {
            save(&tree, &images);
        }
        if step % 20 == 0 {
            evicted += evict(&tree, 2, &mut random);
            unsaved = unsaved.max(tree.unsaved_bytes());
            let key = format!("key {:04}", random.u32(..keys)).into_bytes();
            let is_unwanted = |address: Address| address.0.get().is_multiple_of(3);
            let keep = |image: &[u8], kind| images.keep(image, kind);
            moved += u64::from(tree.move_image(Some(&key), is_unwanted, keep).unwrap());
        }
        if step % 501 == 0 {
            if random.bool() {
                compare(&tree, &model);
            }
            let leaves = save(&tree, &images);
            tree = Tree::restore(options(is_tiny), Arc::clone(&images) as _, leaves).unwrap();
            assert_eq!(tree.check().problems, Vec::<String>::new());
            if random.bool() {
                restored += tree.uncounted();
                let mut page = 0;
                while tree.count_leaf(page).unwrap() {
                    page += 1;
                }
                assert_eq!((tree.uncounted(), tree.len()), (0, model.len() as u64));
            }
            compare(&tree, &model);
        }
    }
    assert!(evicted > 0 && moved > 0 && late > 0 && together > 1);
    assert!(is_tiny || restored > 0);
    // Tiny leaves have no small changes.
    let kinds = images.0.lock().unwrap().kinds;
    assert!(is_tiny || (unsaved > 0 && kinds.iter().all(|count| *count > 0)), "{unsaved}, {kinds:?}");
    compare(&tree, &model);
    assert_eq!((tree.unsaved_bytes(), tree.uncounted()), (0, 0), "all leaves were read");
    for key in model.keys() {
        assert!(tree.delete(key).unwrap());
    }
    compare(&tree, &BTreeMap::new());
}

#[test]
fn a_tree_is_a_map_while_leaves_come_and_go() {
    (0..6).for_each(|seed| churn(seed, true, 3000));
    (0..3).for_each(|seed| churn(seed, false, 20_000));
}

#[test]
fn an_image_that_cannot_be_read_is_an_error_and_changes_nothing() {
    let images = Arc::new(Images::default());
    let tree = Tree::<Bytes>::with_shelf(options(true), Arc::clone(&images) as _).unwrap();
    for key in 0..200u32 {
        tree.put(&key.to_be_bytes(), b"value").unwrap();
    }
    save(&tree, &images);
    assert!(evict(&tree, 1, &mut fastrand::Rng::new()) > 0);
    images.fail(true);
    let is_unreadable = |error: &Error| matches!(error, Error::Unreadable { .. });
    let mut failed = 0;
    for key in 0..200u32 {
        let key = key.to_be_bytes();
        let found = [
            tree.look_up(&key, |_| ()).map(drop),
            tree.put(&key, b"other").map(drop),
            tree.delete(&key).map(drop),
            tree.put(&key, b"value").map(drop),
        ];
        assert!(found.iter().all(|found| found.as_ref().err().is_none_or(is_unreadable)));
        failed += found.iter().filter(|found| found.is_err()).count();
    }
    assert!(failed > 0);
    let mut cursor = tree.iter();
    assert!(cursor.by_ref().count() < 200);
    assert!(cursor.take_error().is_some_and(|error| is_unreadable(&error)));
    images.fail(false);
    assert_eq!(tree.iter().filter(|(_, value)| value == b"value").count(), 200);
    assert_eq!(tree.check().problems, Vec::<String>::new());
}

#[test]
fn threads_write_while_leaves_come_and_go() {
    let images = Arc::new(Images::default());
    let tree = Tree::<Bytes>::with_shelf(options(true), Arc::clone(&images) as _).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let models: Vec<BTreeMap<Vec<u8>, Vec<u8>>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|thread| {
                let tree = &tree;
                scope.spawn(move || {
                    let (mut random, mut model) = (fastrand::Rng::with_seed(thread), BTreeMap::new());
                    for _ in 0..20_000 {
                        let key = format!("{:03} {thread}", random.u32(..200)).into_bytes();
                        if random.bool() {
                            let value = random.bool().then(|| vec![random.u8(..); random.usize(..30)]);
                            let found = tree.set(&key, value.as_deref(), false, &()).unwrap();
                            let was_there = match value {
                                Some(value) => model.insert(key, value).is_some(),
                                None => model.remove(&key).is_some(),
                            };
                            assert!(found.is_none_or(|found| found == was_there));
                        } else if random.bool() {
                            let value = vec![random.u8(..); random.usize(..30)];
                            assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_some());
                        } else {
                            assert_eq!(tree.delete(&key).unwrap(), model.remove(&key).is_some());
                        }
                    }
                    model
                })
            })
            .collect();
        let evictor = scope.spawn(|| {
            let (mut random, mut evicted) = (fastrand::Rng::with_seed(9), 0);
            while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                save(&tree, &images);
                evicted += evict(&tree, 1, &mut random);
            }
            evicted
        });
        let models = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(evictor.join().unwrap() > 0);
        models
    });
    compare(&tree, &models.into_iter().flatten().collect());
}
