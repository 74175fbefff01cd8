//! What a mapped file holds after growths.

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
    // Where the file system has none.
    grows_over_huge_pages(tempfile::tempfile().unwrap());
}
