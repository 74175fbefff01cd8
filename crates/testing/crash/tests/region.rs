//! Tests of the oracle for regions ([`pmem::region`]): the errors that it must find, and the states that it must accept.

use std::sync::Arc;

use crash::region::{verify_image, verify_open};
use pmem::region::{LENGTH_AT, checked};
use pmem::{Durability, Geometry, Identity, Medium, Memory, Observed, Recorder, Region, RegionOptions, WORD};

const CHUNK: u64 = 4096;

fn region() -> (Arc<Memory>, Region<Observed>) {
    let memory = Memory::new(256 << 10, 0);
    let medium = Observed::new(Arc::clone(&memory), Arc::new(Recorder::default()));
    let identity = Identity { engine: "test".into(), kind: "word".into(), node_lines: 2 };
    let options = RegionOptions { geometry: Geometry::tiny(), identity };
    (memory, Region::create(medium, &options, Durability::Power).unwrap())
}

#[test]
fn a_region_is_whole_when_it_is_made_grown_and_closed() {
    let (_, region) = region();
    let whole = |region: &Region<Observed>| {
        verify_open(region.medium()).unwrap();
        verify_image(region.medium(), region.geometry()).unwrap();
    };
    whole(&region);
    region.grow(region.medium().len() + CHUNK).unwrap();
    region.medium().copy(region.geometry().heap_at(), 1);
    whole(&region);
    region.mark_clean(3).unwrap();
    whole(&region);
}

#[test]
fn superblock_copies_that_differ_in_any_word_are_found() {
    let (memory, region) = region();
    for at in (0..32).map(|word| word * WORD) {
        let old = memory.peek(at);
        memory.poke(at, !old);
        assert!(verify_open(region.medium()).unwrap_err().contains("copies differ"));
        memory.poke(at, old);
    }
    verify_open(region.medium()).unwrap();
}

#[test]
fn a_noted_length_that_is_not_the_regions_is_found_and_a_chunk_in_use_beyond_it_before_recovery_too() {
    let (memory, region) = region();
    let (medium, geometry) = (region.medium(), region.geometry());
    let old = medium.len();
    region.grow(old + CHUNK).unwrap();
    memory.poke(LENGTH_AT, checked(old / WORD));
    assert!(verify_open(medium).unwrap_err().contains("noted length"));
    // A growth that a crash kept without its noted length is harmless until a chunk there is used.
    verify_image(medium, geometry).unwrap();
    memory.poke(old, 1);
    assert!(verify_image(medium, geometry).unwrap_err().contains("beyond the noted length"));
    // A word whose check bits are wrong is not a length.
    memory.poke(LENGTH_AT, old);
    assert!(verify_image(medium, geometry).is_err());
}
