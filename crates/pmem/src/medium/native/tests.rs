//! Tests: the content of a mapped file after growths, and its state after a failed sync.

use super::*;
use crate::file::memory_file;

/// Grows a file by less than a huge page and by several, storing to every page after each growth.
fn grows_over_huge_pages(file: File) {
    use std::os::unix::fs::FileExt;
    let kept = file.try_clone().unwrap();
    let native = Native::map(file, Path::new("file"), 64 << 20, Durability::Process).unwrap();
    assert!(native.view.base.addr().get().is_multiple_of(HUGE_PAGE as usize));
    let end = 6 * HUGE_PAGE;
    let mut len = 0;
    for grown in [768 << 10, HUGE_PAGE, HUGE_PAGE + PAGE, 4 * HUGE_PAGE - PAGE, end] {
        native.grow(grown).unwrap();
        for page in (0..grown).step_by(PAGE as usize) {
            let expected = if page < len { page + 1 } else { 0 };
            assert_eq!(native.word(page), expected, "page {page:#x} of {grown:#x}");
            native.copy(page, page + 1);
        }
        len = grown;
    }
    drop(native);
    let mut word = [0; 8];
    for page in (0..end).step_by(PAGE as usize) {
        kept.read_exact_at(&mut word, page).unwrap();
        assert_eq!(u64::from_ne_bytes(word), page + 1, "page {page:#x} of the file");
    }
    assert_eq!(kept.metadata().unwrap().len(), end);
}

#[test]
fn what_is_stored_stays_where_pages_become_huge_ones() {
    grows_over_huge_pages(memory_file().unwrap());
    // A file system without huge pages.
    grows_over_huge_pages(tempfile::tempfile().unwrap());
}

/// Fails every sync of a file while it exists.
struct NoSyncs;

impl crate::system::Watch for NoSyncs {
    fn before(&self, kind: crate::system::Kind, _: &Path, _: Option<&File>) -> crate::system::Verdict {
        use crate::system::{Kind, Verdict};
        let is_sync = matches!(kind, Kind::Sync | Kind::SyncRange { .. });
        if is_sync { Verdict::Fail(libc::EIO) } else { Verdict::Go }
    }
}

/// Once, a growth could be repeated after its sync had failed: the second sync found nothing to write and succeeded, and the store
/// recorded a length that the disk did not have.
#[test]
fn after_a_failed_sync_a_mapped_file_neither_grows_nor_is_synced_again() {
    let dir = tempfile::tempdir().unwrap();
    for grows in [true, false] {
        let path = dir.path().join(format!("store {grows}"));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let native = Native::map(file, &path, 1 << 20, Durability::Power).unwrap();
        native.grow(PAGE).unwrap();
        let watching = crate::system::watch(dir.path(), std::sync::Arc::new(NoSyncs));
        let failed = if grows { native.grow(2 * PAGE) } else { native.sync(0, PAGE) };
        assert!(matches!(failed, Err(Error::Io { .. })), "{failed:?}");
        drop(watching);
        assert_eq!(native.len(), PAGE);
        assert!(matches!(native.grow(2 * PAGE), Err(Error::Failed)));
        assert!(matches!(native.sync(0, PAGE), Err(Error::Failed)));
        // The mapped range can still be read and stored to.
        native.publish(8, 7);
        assert_eq!(native.word(8), 7);
    }
}
