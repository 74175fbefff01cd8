//! Named and retained versions: their contents do not change through crashes, collection and restarts, until they are forgotten or rolled
//! back.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::samples::Sample as _;
use crate::common::{Sample, Tested, memory, options};
use cdds::hash::Hashed;
use cdds::{Inlined, Ordered, Recovery, Structure, Tree, Unsorted, Versioned};
use crash::{Contents, Options, Subject, Workload, by_tier, explore_all};
use index::{Keyed, Life, Words, WriteOptions};
use pmem::{Error, Observed};

type Pairs<X> = crate::common::Pairs<<X as Structure>::Schema>;

fn newest<X: Tested>(tree: &Versioned<Observed, X>) -> Pairs<X> {
    X::newest(tree)
}

fn at<X: Tested>(tree: &Versioned<Observed, X>, name: &str) -> Option<Pairs<X>> {
    let snapshot = tree.snapshot_of(tree.kept_version(name)?).expect("its own mark");
    Some(X::pairs(&snapshot).unwrap())
}

fn create<X: Tested>(medium: &Observed, lines: u64) -> Versioned<Observed, X> {
    Versioned::create(medium.clone(), &X::options(options(lines))).unwrap()
}

fn sound<X: Tested>(tree: &Versioned<Observed, X>) {
    let report = tree.check();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

fn names_survive<X: Tested<Schema = S>, S: Sample>() {
    let (medium, _) = memory(1 << 20);
    let mut tree = create::<X>(&medium, 3);
    let mut kept: BTreeMap<String, Pairs<X>> = BTreeMap::new();
    let mut rng = fastrand::Rng::with_seed(7);
    for round in 0..60_u32 {
        for _ in 0..20 {
            let key = S::key(rng.u32(0..40));
            if rng.u8(0..3) == 0 {
                tree.delete(S::borrow(&key)).unwrap();
            } else {
                tree.put(S::borrow(&key), S::borrow_value(&S::value(rng.u32(0..1000)))).unwrap();
            }
        }
        let name = format!("of round {round}");
        match rng.u8(0..6) {
            0 | 1 => {
                assert!(tree.keep(&name).unwrap() && !tree.keep(&name).unwrap());
                kept.insert(name, newest(&tree));
            }
            2 => {
                let some = kept.keys().nth(rng.usize(0..kept.len().max(1))).cloned();
                let some = some.unwrap_or_default();
                assert_eq!(tree.forget(&some).unwrap(), kept.remove(&some).is_some());
            }
            3 => tree.collect_all().unwrap(),
            4 => {
                if rng.bool() {
                    tree.close().unwrap();
                }
                tree = X::open_in(&medium, 3, if rng.bool() { Recovery::Lazy } else { Recovery::Scan });
            }
            _ => {
                let names: Vec<_> = tree.kept_versions();
                if let Some(to) = names.get(rng.usize(0..names.len().max(1))) {
                    assert!(tree.roll_back(&to.mark).unwrap());
                    assert_eq!(newest(&tree), kept[&to.name]);
                    assert_eq!(tree.len(), kept[&to.name].len() as u64);
                    kept.retain(|name, _| tree.kept_version(name).is_some());
                    let stays = |other: &&cdds::Kept| other.mark.version() <= to.mark.version();
                    assert_eq!(kept.len(), names.iter().filter(stays).count());
                }
            }
        }
        for (name, pairs) in &kept {
            assert_eq!(at(&tree, name).as_ref(), Some(pairs), "{name}");
        }
        assert_eq!(tree.kept_versions().len(), kept.len());
        sound(&tree);
    }
    for name in kept.into_keys() {
        assert!(tree.forget(&name).unwrap());
    }
    tree.collect_all().unwrap();
    tree.collect_all().unwrap();
    sound(&tree);
}

#[test]
fn named_versions_show_the_same_until_they_are_forgotten_or_rolled_back() {
    names_survive::<Ordered<Words>, Words>();
    names_survive::<Ordered<Inlined>, Inlined>();
    names_survive::<Ordered<Words, Unsorted>, Words>();
    names_survive::<Ordered<Inlined, Unsorted>, Inlined>();
    names_survive::<Hashed<Words>, Words>();
    names_survive::<Hashed<Keyed>, Keyed>();
}

#[test]
fn what_was_taken_back_says_so() {
    let (medium, _) = memory(1 << 20);
    let tree = Tree::<Observed, Words>::create(medium, &options(4)).unwrap();
    tree.put(&1, &1).unwrap();
    let before = tree.snapshot();
    tree.put(&2, &2).unwrap();
    let (after, mut cursor) = (tree.snapshot(), tree.cursor());
    let (mut key, mut value) = (0, 0);
    assert!(cursor.next(&mut key, &mut value).unwrap());
    assert!(tree.roll_back(before.mark()).unwrap());
    let version = after.version();
    let told = |error: Error| matches!(error, Error::TakenBack { version: of } if of == version);
    assert!(told(after.get(&1, None).unwrap_err()));
    assert!(told(after.cursor().next(&mut key, &mut value).unwrap_err()));
    assert!(told(cursor.next(&mut key, &mut value).unwrap_err()));
    assert!(told(tree.roll_back(after.mark()).unwrap_err()));
    assert!(tree.mark_at(version).is_none());
    assert!(before.get(&1, None).unwrap() && !before.get(&2, None).unwrap());
    let (other, _) = memory(1 << 20);
    let other = Tree::<Observed, Words>::create(other, &options(4)).unwrap();
    assert!(!other.roll_back(before.mark()).unwrap() && other.snapshot_of(before.mark().clone()).is_none());
}

#[test]
fn retained_versions_can_be_read_until_they_are_too_old() {
    retained::<Ordered<Words>>();
    retained::<Ordered<Words, Unsorted>>();
    retained::<Hashed<Words>>();
}

fn retained<X: Tested<Schema = Words>>() {
    let (medium, _) = memory(1 << 20);
    let tree = create::<X>(&medium, 4);
    tree.retain_versions(10);
    let mut states = BTreeMap::new();
    for n in 0..100_u64 {
        tree.put(&(n % 7), &n).unwrap();
        states.insert(tree.version(), newest(&tree));
        tree.collect_all().unwrap();
        let oldest = tree.oldest_version();
        assert!(tree.version() - oldest <= 10);
        for (version, state) in states.range(oldest..) {
            let snapshot = tree.snapshot_of(tree.mark_at(*version).unwrap()).unwrap();
            assert_eq!(&X::pairs(&snapshot).unwrap(), state);
        }
        assert!(tree.mark_at(oldest - 1).is_none());
    }
    // A rollback to a version that is not the newest. Its keys were not counted.
    let to = tree.mark_at(tree.version() - 5).unwrap();
    let wanted = states[&to.version()].clone();
    assert!(tree.roll_back(&to).unwrap());
    assert_eq!((newest(&tree), tree.len()), (wanted.clone(), wanted.len() as u64));
    tree.retain_versions(0);
    tree.retain_since(Some(tree.version()));
    let since = tree.version();
    for n in 0..30 {
        tree.put(&n, &n).unwrap();
        tree.collect_all().unwrap();
    }
    let snapshot = tree.snapshot_of(tree.mark_at(since).unwrap()).unwrap();
    assert_eq!(X::pairs(&snapshot).unwrap(), wanted);
    drop(tree);
    // A restart forgets the collected versions, so the version is not readable.
    assert!(X::open_in(&medium, 4, Recovery::Lazy).mark_at(since).is_none());
}

const LINES: u64 = 2;

/// Names versions, rolls back to them and forgets them, with a crash at any point.
#[derive(Clone, Debug)]
enum Op {
    Put(u32, u32),
    Keep(&'static str),
    Forget(&'static str),
    /// Rolls back to the first name, which removes the names of the list.
    Back(&'static str, &'static [&'static str]),
    Collect,
    Kill,
}

struct Named<X: Tested<Schema = Words>> {
    medium: Observed,
    tree: Versioned<Observed, X>,
}

fn state_of(pairs: impl IntoIterator<Item = (u64, u64)>) -> Vec<u8> {
    pairs.into_iter().flat_map(|(key, value)| [key.to_le_bytes(), value.to_le_bytes()]).flatten().collect()
}

impl<X: Tested<Schema = Words>> Subject for Named<X> {
    type Op = Op;
    type Config = ();
    fn size((): &()) -> (u64, u64) {
        (0, 256 << 10)
    }
    fn create(medium: Observed, (): &()) -> Result<Self, String> {
        let tree = Versioned::create(medium.clone(), &X::options(options(LINES)))
            .map_err(|error| error.to_string())?;
        Ok(Self { medium, tree })
    }
    fn recover(medium: Observed, (): &()) -> Result<Self, String> {
        let how = X::options(options(LINES));
        let opened = Versioned::open(medium.clone(), Path::new("observed"), &how, Recovery::Lazy);
        match opened {
            Ok((tree, _)) => Ok(Self { medium, tree }),
            Err(error @ (Error::Foreign { .. } | Error::Superblock { .. })) => Err(error.to_string()),
            Err(error) => panic!("a whole superblock, and yet: {error}"),
        }
    }
    fn apply(&mut self, op: &Op) -> Result<(), String> {
        let done = match op {
            Op::Put(key, value) => {
                let how = WriteOptions::default();
                self.tree.put_as(&Words::key(*key), &Words::value(*value), how).map(drop)
            }
            Op::Keep(name) => self.tree.keep(name).map(drop),
            Op::Forget(name) => self.tree.forget(name).map(drop),
            Op::Back(name, _) => {
                let mark = self.tree.kept_version(name).ok_or("no such name")?;
                self.tree.roll_back(&mark).map(drop)
            }
            Op::Collect => self.tree.collect_all(),
            Op::Kill => return Self::recover(self.medium.clone(), &()).map(|new| *self = new),
        };
        done.map_err(|error| error.to_string())
    }
    fn apply_model(op: &Op, model: &mut Contents) {
        let kept = |name: &str| [b"~", name.as_bytes()].concat();
        match op {
            Op::Put(key, value) => {
                model
                    .insert(Words::key(*key).to_be_bytes().into(), Words::value(*value).to_le_bytes().into());
            }
            Op::Keep(name) => {
                let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("a key"));
                let value = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("a value"));
                let pairs = model.iter().filter(|(key, _)| key[0] != b'~');
                let state = state_of(pairs.map(|(key, of)| (word(key), value(of))));
                model.entry(kept(name)).or_insert(state);
            }
            Op::Forget(name) => _ = model.remove(&kept(name)),
            Op::Back(name, forgotten) => {
                forgotten.iter().for_each(|name| _ = model.remove(&kept(name)));
                model.retain(|key, _| key[0] == b'~');
                for pair in model[&kept(name)].clone().chunks(16) {
                    let key: Vec<u8> = pair[..8].iter().rev().copied().collect();
                    model.insert(key, pair[8..].to_vec());
                }
            }
            Op::Collect | Op::Kill => {}
        }
    }
    fn verify(&self) -> Result<Contents, String> {
        let report = self.tree.check();
        if let Some(problem) = report.problems.first() {
            return Err(problem.clone());
        }
        let mut contents: Contents = newest(&self.tree)
            .into_iter()
            .map(|(key, value)| (key.to_be_bytes().into(), value.to_le_bytes().into()))
            .collect();
        for kept in self.tree.kept_versions() {
            let state = at(&self.tree, &kept.name).expect("it is in the list");
            contents.insert([b"~", kept.name.as_bytes()].concat(), state_of(state));
        }
        Ok(contents)
    }
    fn continuation(_: &Op) -> Vec<Op> {
        vec![Op::Put(3, 77), Op::Keep("z"), Op::Collect]
    }
    fn close(self) -> Result<(), String> {
        self.tree.close().map_err(|error| error.to_string())
    }
}

#[test]
fn names_survive_a_crash_anywhere() {
    crashes::<Ordered<Words>>();
    crashes::<Ordered<Words, Unsorted>>();
    crashes::<Hashed<Words>>();
}

fn crashes<X: Tested<Schema = Words>>() {
    let mut ops = vec![Op::Put(1, 1), Op::Put(2, 1), Op::Keep("a")];
    ops.extend((1..7).map(|n| Op::Put(n, 2)));
    ops.extend([Op::Keep("b"), Op::Put(1, 3), Op::Keep("c"), Op::Put(2, 3), Op::Collect, Op::Kill]);
    ops.extend([Op::Back("b", &["c"]), Op::Put(4, 4), Op::Forget("a"), Op::Collect, Op::Put(5, 5)]);
    ops.extend([Op::Keep("d"), Op::Put(6, 6), Op::Back("b", &["d"]), Op::Forget("b"), Op::Collect]);
    let bounds = Options { cap: by_tier(16, 64), nested_cap: by_tier(4, 8), ..Options::default() };
    let report = explore_all(&[Workload::<Named<X>>::new((), ops)], &bounds);
    println!("{} images, {} inside recovery", report.images, report.nested_images);
    assert!(!report.is_violated(), "{report}");
    assert!(report.images > 500, "{report}");
}
