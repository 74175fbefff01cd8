//! Private memory: every page that was stored to is given up in the end.

use pmem::{Journal, Medium};

use crate::life::Oracle;
use crash::Machine;

const PAGE: u64 = 4096;

/// Groups of one line of the first page until a half is full, then a checkpoint: the pages that it gave up. The first page
/// is not one of them, it is in the younger lap too. The checkpoint meets what `running` stores, which is rolled back then.
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
    // The words that they hold, in groups without and with a change.
    (1..4).for_each(|page| journal.publish(page * PAGE, 0));
    assert_eq!(journal.commit().unwrap(), value, "nothing changed");
    (4..6).for_each(|page| journal.publish(page * PAGE, 0));
    journal.publish(8, u64::MAX);
    journal.commit().unwrap();
    (6..10).for_each(|page| journal.publish(page * PAGE, 7));
    journal.roll_back();
    // A page that the running group has stored to stays until that has ended.
    let running = || journal.publish(10 * PAGE, 7);
    assert_eq!(pages_dropped(&journal, &mut value, running), 9);
    assert_eq!(pages_dropped(&journal, &mut value, || ()), 1);
    assert_eq!(pages_dropped(&journal, &mut value, || ()), 0);
    assert!((1..11).all(|page| journal.word(page * PAGE) == 0));
}
