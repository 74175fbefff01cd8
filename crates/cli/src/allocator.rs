//! The allocator of the program: mimalloc.
//!
//! A command of the server makes many small allocations, for which it is faster than the allocator of glibc. It does not use huge pages: an idle
//! connection would keep three times as much memory.

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Returns free memory to the system. Takes up to some milliseconds for each GiB of free memory.
pub fn release() {
    // SAFETY: the function may be called at any time and from any thread. It frees only memory that is not in use.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}
