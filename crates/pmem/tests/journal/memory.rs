//! Private memory: after the last store to a page, a later checkpoint drops the private copy of the page.

use pmem::{Journal, Medium};

use crate::life::Oracle;
use crash::Machine;

const PAGE: u64 = 4096;

/// Commits groups of one line of the first page until a half is full, then makes a checkpoint. Returns the number of pages that it dropped.
/// The first page is not one of them, because it is in the younger generation, too. During the checkpoint there are stores of `running`,
/// which are rolled back afterwards.
fn pages_dropped(journal: &Journal, value: &mut u64, running: impl Fn()) -> u64 {
    loop {
        *value += 1;
        journal.publish(8, *value);
        journal.commit().unwrap();
        running();
        let checkpoint = journal.checkpoint().unwrap();
        journal.roll_back();
        if let Some(checkpoint) = checkpoint {
            return checkpoint.pages_dropped;
        }
    }
}

#[test]
fn pages_that_were_stored_to_and_not_changed_or_rolled_back_are_given_up_by_the_next_checkpoint() {
    let machine = Machine::new(1);
    let journal = Oracle::new().create(&machine).unwrap();
    journal.grow(16 * PAGE).unwrap();
    let mut value = 0;
    assert_eq!(pages_dropped(&journal, &mut value, || ()), 0);
    // Stores of unchanged values, in groups without and with a change.
    (1..4).for_each(|page| journal.publish(page * PAGE, 0));
    assert_eq!(journal.commit().unwrap(), value, "nothing changed");
    (4..6).for_each(|page| journal.publish(page * PAGE, 0));
    journal.publish(8, u64::MAX);
    journal.commit().unwrap();
    (6..10).for_each(|page| journal.publish(page * PAGE, 7));
    journal.roll_back();
    // A page with stores of the running group is not dropped before that group has ended.
    let running = || journal.publish(10 * PAGE, 7);
    assert_eq!(pages_dropped(&journal, &mut value, running), 9);
    assert_eq!(pages_dropped(&journal, &mut value, || ()), 1);
    assert_eq!(pages_dropped(&journal, &mut value, || ()), 0);
    assert!((1..11).all(|page| journal.word(page * PAGE) == 0));
}
