//! Tests of the segments over files: buffers, threads that write and read, packed images, direct I/O.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn segments(dir: &tempfile::TempDir, bytes: u64) -> Segments {
    let place = Place { dir: dir.path().to_owned(), stem: "s".into(), store: 7 };
    let settings = Settings { survives_power: false, is_small: bytes < SEGMENT, ..Settings::default() };
    let segments = Segments::open(place, &settings, &[], false).unwrap();
    segments.resize(bytes);
    segments
}

/// A directory beside the program, so on a disk.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

/// With direct I/O: images of many lengths, in buffers of any length, read from buffers, from the files, in parts, ahead, and after an open.
#[test]
fn images_bypass_the_page_cache() {
    for has_ring in [false, true] {
        let dir = on_disk();
        let place = Place { dir: dir.path().to_owned(), stem: "s".into(), store: 7 };
        let settings = Settings { direct_io: true, ..Settings::default() };
        let mut segments = Segments::open(place.clone(), &settings, &[], false).unwrap();
        let fetched = || Some(Arc::new(Fetched::new(1 << 20, has_ring)));
        segments.fetched = fetched();
        let image = |number: usize| vec![number as u8; 1 + number * number % 9000];
        let mut addresses = Vec::new();
        for number in 0..300 {
            let kind = if number % 3 == 0 { ImageKind::Whole } else { ImageKind::Changes };
            addresses.push(segments.append(&image(number), kind, number as u64).unwrap());
            match number % 40 {
                7 => segments.hand_over_all().unwrap(),
                20 => segments.write_all().unwrap(),
                _ => {}
            }
            for back in [0, 1, 30, 150] {
                let Some(number) = number.checked_sub(back) else { continue };
                assert_eq!(segments.image(addresses[number]).unwrap(), image(number));
            }
        }
        segments.sync().unwrap();
        let numbers: Vec<u64> = segments.sizes().into_iter().map(|(number, _)| number).collect();
        assert!(segments.sizes().iter().all(|(_, bytes)| bytes.is_multiple_of(settings.block() as u64)));
        // Salvage finds them between the zeros that fill blocks.
        let mut found = BTreeSet::new();
        numbers
            .iter()
            .for_each(|own| found.extend(segments.images(*own).unwrap().iter().map(|(_, at)| at.0)));
        assert_eq!(found, addresses.iter().map(|address| address.0).collect());
        drop(segments);
        for direct_io in [true, false] {
            let settings = Settings { direct_io, read_only: true, ..Settings::default() };
            let mut segments = Segments::open(place.clone(), &settings, &numbers, false).unwrap();
            assert_eq!(segments.fetched.is_some(), direct_io);
            segments.fetched = segments.fetched.and_then(|_| fetched());
            for round in 0..30 {
                let group = round * 10..(round + 1) * 10;
                segments.prefetch(&mut addresses[group.clone()].to_vec());
                for (address, number) in addresses[group.clone()].iter().zip(group) {
                    assert_eq!(segments.image(*address).unwrap(), image(number));
                    let (whole, middle) = (image(number), image(number).len() / 2);
                    let part = segments.part(*address, middle..whole.len());
                    assert_eq!(part.unwrap(), whole[middle..]);
                }
            }
            assert!(segments.reader.get().is_some_and(Option::is_some));
            let hits = segments.fetched.as_ref().map(|fetched| fetched.hits());
            assert_eq!(hits, direct_io.then_some(300), "all images were read ahead");
        }
    }
}

#[test]
fn a_buffer_that_is_handed_over_is_read_and_written_before_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let segments = segments(&dir, 4 << 10);
    let (mut images, mut written) = (Vec::new(), 0);
    for round in 0..100_u8 {
        let image = vec![round; 700 + usize::from(round)];
        images.push((segments.append(&image, ImageKind::Whole, u64::from(round)).unwrap(), image));
        match round % 5 {
            1 => written = images.len(),
            4 => segments.hand_over_all().unwrap(),
            _ => {}
        }
        if round % 5 == 1 {
            segments.write_all().unwrap();
        }
        for (number, (address, image)) in images.iter().enumerate() {
            assert_eq!(&segments.image(*address).unwrap(), image);
            assert!(number >= written || segments.is_written(*address));
        }
        assert!(round % 5 != 4 || !segments.is_written(images[images.len() - 1].0));
    }
    segments.write_all().unwrap();
    let found = segments.sizes().into_iter().flat_map(|(number, _)| segments.images(number).unwrap());
    let found: Vec<Address> = found.map(|(_, address)| address).collect();
    assert_eq!(found, images.iter().map(|(address, _)| *address).collect::<Vec<_>>());
}

/// Behind the greatest number, the numbers of removed segments are used again (P5), also after an open.
#[test]
fn numbers_of_removed_segments_are_used_again() {
    const FIRST: u64 = SEGMENT_MAX - 1;
    let dir = tempfile::tempdir().unwrap();
    let (mut segments, mut images) = (segments(&dir, 4 << 10), Vec::new());
    lock(&segments.writer).next_number = FIRST;
    let image = |number: u64| vec![number as u8; 3000];
    let append = |segments: &Segments, number: u64| {
        let address = segments.append(&image(number), ImageKind::Whole, number).unwrap();
        (Parts::of(address).segment, address)
    };
    // An image fills a segment. The second and the third one are removed.
    images.extend((0..5).map(|number| append(&segments, number)));
    let numbers = |images: &[(u64, Address)]| images.iter().map(|(segment, _)| *segment).collect::<Vec<_>>();
    assert_eq!(numbers(&images), [FIRST, SEGMENT_MAX, 1, 2, 3]);
    segments.remove(&[SEGMENT_MAX, 1]).unwrap();
    let filled = segments.begin_checkpoint();
    assert!([FIRST, 2].into_iter().all(|number| filled.has(number)));
    assert!(![SEGMENT_MAX, 1, 3, 4].into_iter().any(|number| filled.has(number)));
    lock(&segments.writer).next_number = FIRST;
    images.extend((5..8).map(|number| append(&segments, number)));
    assert_eq!(numbers(&images[5..]), [SEGMENT_MAX, 1, 4]);
    assert!(!filled.has(4));
    segments.write_all().unwrap();
    let place = segments.place.clone();
    drop(segments);
    let used: Vec<u64> = numbers(&images).into_iter().filter(|number| ![2, 4].contains(number)).collect();
    let settings = Settings { is_small: true, ..Settings::default() };
    segments =
        Segments::open(place, &settings, &BTreeSet::from_iter(used).into_iter().collect::<Vec<_>>(), false)
            .unwrap();
    images.extend((8..10).map(|number| append(&segments, number)));
    assert_eq!(numbers(&images[8..]), [2, 4]);
    for number in [0, 4, 5, 6, 8, 9] {
        assert_eq!(segments.image(images[number as usize].1).unwrap(), image(number));
    }
}

/// A part that was read ahead of a removed segment is not taken for one of the next segment with its number.
#[test]
fn parts_of_a_removed_segment_are_not_those_of_the_next_one() {
    let dir = on_disk();
    let place = Place { dir: dir.path().to_owned(), stem: "s".into(), store: 7 };
    let settings = Settings { direct_io: true, ..Settings::default() };
    let segments = Segments::open(place, &settings, &[], false).unwrap();
    segments.resize(4 << 10);
    let append = |byte: u8| segments.append(&[byte; 3000], ImageKind::Whole, 1).unwrap();
    let old = [append(1), append(2), append(3)];
    segments.write_all().unwrap();
    segments.prefetch(&mut old.to_vec());
    assert_eq!(old.map(|address| segments.image(address).unwrap()[0]), [1, 2, 3]);
    assert_eq!(segments.fetched.as_ref().unwrap().hits(), 3);
    segments.remove(&[1, 2]).unwrap();
    lock(&segments.writer).next_number = 1;
    let new = [append(4), append(5)];
    segments.write_all().unwrap();
    assert_eq!(new, old[..2]);
    assert_eq!(new.map(|address| segments.image(address).unwrap()[0]), [4, 5]);
}

/// Packed and other images, in buffers and in the file.
#[test]
fn images_are_packed_if_that_saves_enough() {
    let (dir, mut random) = (tempfile::tempdir().unwrap(), fastrand::Rng::with_seed(1));
    let mut segments = segments(&dir, SEGMENT);
    segments.packer = Some(Mutex::default());
    let mut images = Vec::new();
    for number in 0..60_usize {
        let image: Vec<u8> = match number % 3 {
            0 => (0..5000).map(|_| random.u8(..)).collect(),
            _ => (0..5000 + number).map(|at| (at / 10) as u8).collect(),
        };
        images.push((segments.append(&image, ImageKind::Whole, number as u64).unwrap(), image));
        if number == 50 {
            segments.write_all().unwrap();
        }
    }
    assert!(segments.saved() > 40 * 2500);
    for (number, (address, image)) in images.iter().enumerate() {
        let parts = Parts::of(*address);
        assert_eq!(parts.is_packed, number % 3 > 0);
        // What an address says about the form must be true.
        let wrong = Parts { is_packed: !parts.is_packed, ..parts }.pack().unwrap();
        assert!(!segments.is_written(wrong) || segments.image(wrong).is_err());
        assert_eq!(parts.bytes < 2500, parts.is_packed);
        assert_eq!(segments.first_piece(*address) == usize::MAX, parts.is_packed);
        assert_eq!(&segments.image(*address).unwrap(), image);
        for part in [0..PIECE, 100..200, 4000..5000] {
            assert_eq!(segments.part(*address, part.clone()).unwrap(), image[part]);
        }
    }
    segments.write_all().unwrap();
    let addresses: Vec<Address> = images.iter().map(|(address, _)| *address).collect();
    let found = segments.images(1).unwrap().into_iter().map(|(_, address)| address);
    assert_eq!(found.collect::<Vec<_>>(), addresses);
    // The order of images in the file is not that of their addresses.
    let mut sorted = addresses.clone();
    segments.prefetch(&mut sorted);
    assert_eq!(sorted, addresses);
}

#[test]
fn a_buffer_that_a_thread_did_not_write_is_written_again() {
    for has_ended in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let segments = segments(&dir, 4 << 10);
        let first = segments.append(&[1; 500], ImageKind::Changes, 1).unwrap();
        segments.hand_over_all().unwrap();
        let (done, result) = std::sync::mpsc::sync_channel(1);
        if !has_ended {
            done.send(Err(std::io::ErrorKind::StorageFull.into())).unwrap();
        }
        drop(done);
        lock(&segments.writer).streams[ImageKind::Changes as usize].handed.as_mut().unwrap().result =
            Some(result);
        let second = segments.append(&[2; 500], ImageKind::Changes, 2).unwrap();
        segments.hand_over_all().unwrap();
        assert!(segments.is_written(first) && !segments.is_written(second));
        assert_eq!(segments.image(first).unwrap(), [1; 500]);
        assert_eq!(segments.image(second).unwrap(), [2; 500]);
    }
}

#[test]
fn images_are_read_while_a_thread_writes_them() {
    [false, true].into_iter().for_each(read_while_a_thread_writes);
}

/// Threads read images while they are appended, handed over, and written by another thread, in more than one segment.
fn read_while_a_thread_writes(compresses: bool) {
    const COUNT: usize = 3000;
    let dir = tempfile::tempdir().unwrap();
    let mut segments = segments(&dir, SEGMENT);
    segments.packer = compresses.then(Mutex::default);
    let segments = segments;
    // Seven tenths of an image cannot be compressed.
    let image = |number: usize| {
        let mut image = vec![number as u8; 100 + number * 37 % if compresses { 90_000 } else { 60_000 }];
        let random = if compresses { image.len() / 10 * 7 } else { 0 };
        fastrand::Rng::with_seed(number as u64).fill(&mut image[..random]);
        image
    };
    let (images, done) = (Mutex::new(Vec::<Address>::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (images, segments, done) = (&images, &segments, &done);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !done.load(Ordering::Acquire) {
                    let known = lock(images).clone();
                    for _ in 0..20.min(known.len()) {
                        let number = random.usize(..known.len());
                        assert_eq!(segments.image(known[number]).unwrap(), image(number));
                    }
                }
            });
        }
        let work = || -> Result<()> {
            for number in 0..COUNT {
                let kind = if number % 8 == 0 { ImageKind::Whole } else { ImageKind::Changes };
                let address = segments.append(&image(number), kind, 1)?;
                lock(&images).push(address);
                if number % 64 == 63 {
                    segments.hand_over_all()?;
                }
                // The newest ones are in buffers, or handed over.
                for back in [0, 1, 70] {
                    let Some(number) = number.checked_sub(back) else { continue };
                    let address = lock(&images)[number];
                    assert_eq!(segments.image(address)?, image(number));
                }
            }
            segments.sync()
        };
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Release);
        worked.unwrap().unwrap();
    });
    assert!(segments.writing.get().is_some_and(Option::is_some));
    let numbers: BTreeSet<u64> = lock(&images).iter().map(|address| Parts::of(*address).segment).collect();
    assert_eq!(numbers.len(), 3);
    assert_eq!(segments.saved() > 0, compresses);
    // A file that is removed while it is open, and is then closed by a helper.
    segments.prefetch(&mut lock(&images).clone());
    let first = Parts::of(lock(&images)[1]).segment;
    segments.remove(&[first]).unwrap();
    assert!(!segments.place.path(PAGES, first).exists());
    for (number, address) in lock(&images).iter().enumerate() {
        let found = segments.image(*address).ok();
        assert_eq!(found, (Parts::of(*address).segment != first).then(|| image(number)));
    }
}

/// The thread that reads ahead ends with the segments, whatever it was asked for, and the images are the same.
#[test]
fn images_are_read_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let segments = segments(&dir, SEGMENT);
    let image = |number: usize| vec![number as u8; 100 + number * 37 % 5000];
    let append = |number| segments.append(&image(number), ImageKind::Whole, 1).unwrap();
    let mut addresses: Vec<Address> = (0..300).map(append).collect();
    // Some are not written yet.
    segments.write_all().unwrap();
    addresses.extend((300..320).map(append));
    let asked = addresses.clone();
    segments.prefetch(&mut [asked[0]]);
    assert!(segments.reader.get().is_none(), "one image does not wait for a thread");
    for round in 0..100 {
        segments.prefetch(&mut asked[round..].to_vec());
        assert!(segments.reader.get().is_some_and(Option::is_some));
    }
    for (number, address) in addresses.iter().enumerate() {
        assert_eq!(segments.image(*address).unwrap(), image(number));
    }
}
