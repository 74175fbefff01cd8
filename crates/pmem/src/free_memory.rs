//! Returns free memory of the allocator to the system.
//!
//! The allocator of glibc keeps most memory that a program frees. So a server's process would stay large after thousands of clients have
//! left. Other C libraries need no such call; [`release`] does nothing with them.

/// Returns free pages of the heap to the system. Takes up to some milliseconds for each GiB of free memory; other threads may have to wait
/// for memory during it.
pub fn release() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes the locks of the allocator itself, and reads only its argument.
    unsafe {
        libc::malloc_trim(0);
    }
}
