//! The allocator of the program: mimalloc.
//!
//! A command of the server makes many small allocations. mimalloc is faster at them than the allocator of glibc. It does not use huge pages:
//! with them, an idle connection takes almost three times the memory.
#![allow(unsafe_code, reason = "the library has no safe function that returns memory")]

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Returns free memory to the system.
pub fn release() {
    // SAFETY: the function may be called at any time and from any thread. It frees only memory that is not in use.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}
