//! Every durable ordered engine of the registry that is not scheduled by tests of its own crate.

use std::cell::Cell;
use std::marker::PhantomData;
use std::path::Path;

use bptree::roster::TREES;
use bristlecone::registry;
use index::kind::{Bytes, U64};
use index::{About, Create, Family, Form, Index, Visitor};
use pmem::omission::Omission;
use pmem::{Durability, Geometry, Medium, Result};
use schedules::campaign::{Execution, Tally, WHOLE, campaign, execute, execute_journaled, notice};
use schedules::scheduled::{Sampled, Scheduled};

/// Scheduled by tests of their own crates, with settings of their own; CDDS is tested by turns that a seed repeats.
const SCHEDULED_ELSEWHERE: [&str; 5] = ["vlab", "nvtree", "cdds", "cdds-unsorted", "cdds-hash"];

fn engines() -> impl Iterator<Item = &'static About> {
    let is_here = |about: &&About| {
        let can = registry::find(about.name).unwrap().capabilities;
        let has_own = TREES.iter().any(|tree| tree.name == about.name);
        can.durable && can.ordered && !has_own && !SCHEDULED_ELSEWHERE.contains(&about.name)
    };
    registry::engines().filter(is_here)
}

/// An index type and its engine's fewest lines of a node.
trait Registered: 'static {
    type Keys: Sampled;
    type Over<M: Medium>: Index<Self::Keys> + Create<M>;
}

struct WordsOf<F>(PhantomData<F>);
struct BytesOf<F>(PhantomData<F>);

impl<F: Family> Registered for WordsOf<F> {
    type Keys = U64;
    type Over<M: Medium> = F::Words<M>;
}
impl<F: Family> Registered for BytesOf<F> {
    type Keys = Bytes;
    type Over<M: Medium> = F::Bytes<M>;
}

thread_local! {
    static LINES: Cell<u64> = const { Cell::new(4) };
}

struct Of<R>(PhantomData<R>);

impl<R: Registered> Scheduled for Of<R> {
    type Keys = R::Keys;
    type Over<M: Medium> = R::Over<M>;

    fn create<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>> {
        R::Over::<M>::create(medium, &form(lines))
    }
    fn open<M: Medium>(medium: M, lines: u64) -> Result<Self::Over<M>> {
        Ok(R::Over::<M>::open(medium, Path::new("image"), &form(lines))?.0)
    }
}

fn form(lines: u64) -> Form {
    let usual = Form::new("schedules", lines, Durability::Power);
    Form { geometry: Some(Geometry::tiny()), stripes: 16, ..usual }
}

struct Executions;

impl Visitor for Executions {
    type Out = [(&'static str, Execution); 3];
    fn visit<F: Family>(self, _about: &'static About) -> Self::Out {
        [
            ("words", |how| execute::<Of<WordsOf<F>>>(LINES.get(), how)),
            ("byte strings", |how| execute::<Of<BytesOf<F>>>(LINES.get(), how)),
            ("byte strings over a journal", |how| execute_journaled::<Of<BytesOf<F>>>(LINES.get(), how)),
        ]
    }
}

#[test]
fn what_every_thread_is_told_can_be_explained_and_outlasts_a_crash() {
    let mut scheduled = 0;
    for about in engines() {
        let executions = registry::visit(about.name, Executions).expect("it is in the registry");
        let mut total = Tally::default();
        for (name, execution) in executions {
            total.add(campaign(&format!("{}, {name}", about.name), crash::by_tier(250, 1600), execution));
        }
        println!("{}: {total:?}", about.name);
        assert!(total.cuts >= total.executions && total.failures > 0, "too little was cut short: {total:?}");
        scheduled += 1;
    }
    assert!(scheduled > 0, "the smallest engine is registered in tests");
}

/// In `line`, scans of a leaf with byte strings keep its order for later scans. (These executions are too few to find a reader that fills a
/// line without its validation. The model of [`pmem::kept`] notices that.)
#[test]
fn an_order_that_is_kept_in_spite_of_a_change_is_noticed() {
    let executions = registry::visit("line", Executions).expect("it is a default engine");
    // Scans sort 64-bit keys each time.
    let with_orders: Vec<_> = executions.into_iter().filter(|(name, _)| *name != "words").collect();
    assert!(!with_orders.is_empty(), "no execution has byte strings");
    for (name, execution) in with_orders {
        let omissions = [Omission::KeptClear, Omission::KeptRead].map(|omission| (Some(omission), WHOLE, ""));
        notice(&format!("line, {name}"), execution, &omissions);
    }
}
