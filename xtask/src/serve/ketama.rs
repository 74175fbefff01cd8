//! Consistent hashing as the clients of memcached do it (ketama). Each server has [`POINTS`] points on a ring of 32-bit numbers. A key
//! belongs to the server of the first point at or after the key's hash. So a further server takes over only keys of its own, about the same
//! number from each other server.
//!
//! The points are from MD5 digests of the server's name with a number, four points from each digest, as in libketama and libmemcached.

/// Points of a server.
const POINTS: usize = 160;

/// A ring of servers.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Points with the servers' numbers, sorted.
    points: Vec<(u32, usize)>,
}

impl Ring {
    /// The ring of servers with these names.
    pub fn new(names: &[String]) -> Self {
        let mut points = Vec::with_capacity(names.len() * POINTS);
        for (server, name) in names.iter().enumerate() {
            for number in 0..POINTS / 4 {
                let digest = md5(format!("{name}-{number}").as_bytes());
                points.extend(digest.map(|point| (point, server)));
            }
        }
        points.sort_unstable();
        Self { points }
    }

    /// The number of the server that has this key.
    pub fn server_of(&self, key: &[u8]) -> usize {
        let hash = md5(key)[0];
        let at = self.points.partition_point(|(point, _)| *point < hash);
        self.points[at % self.points.len()].1
    }
}

/// The MD5 digest (RFC 1321), as four little-endian words.
fn md5(bytes: &[u8]) -> [u32; 4] {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64), 0);
    let end = padded.len() - 8;
    padded[end..].copy_from_slice(&(bytes.len() as u64 * 8).to_le_bytes());
    let mut state = [0x6745_2301_u32, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];
    for block in padded.chunks_exact(64) {
        let (words, _) = block.as_chunks::<4>();
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64_usize {
            let (mixed, word) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), 7 * step % 16),
            };
            // The standard defines its constants by this formula.
            let constant = ((step + 1) as f64).sin().abs() * 4_294_967_296.0;
            let sum = a
                .wrapping_add(mixed)
                .wrapping_add(constant as u32)
                .wrapping_add(u32::from_le_bytes(words[word]));
            (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4])));
        }
        for (word, add) in state.iter_mut().zip([a, b, c, d]) {
            *word = word.wrapping_add(add);
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        md5(bytes).iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(hex(b""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(hex(b"abcdefghijklmnopqrstuvwxyz"), "c3fcd3d76192e4007dfb496cca67e13b");
        assert_eq!(hex("1234567890".repeat(8).as_bytes()), "57edf4a22be3c955ac49da2e2107b67a");
        // The lengths round the end of a block.
        assert_eq!(hex(&[b'a'; 55]), "ef1772b6dff9a122358552954ad0df65");
        assert_eq!(hex(&[b'a'; 56]), "3b0c8ac703f828b04c6c197006d17218");
        assert_eq!(hex(&[b'a'; 63]), "b06521f39153d618550606be297466d5");
        assert_eq!(hex(&[b'a'; 64]), "014842d480b571495a4a0363793f7367");
    }

    #[test]
    fn keys_are_spread_and_a_further_server_takes_only_its_own() {
        let names: Vec<String> = (0..7).map(|server| format!("127.0.0.1:{}", 7000 + server)).collect();
        let (six, seven) = (Ring::new(&names[..6]), Ring::new(&names));
        let mut counts = [0; 6];
        for number in 0..6000 {
            let key = format!("key:{number}");
            let (before, after) = (six.server_of(key.as_bytes()), seven.server_of(key.as_bytes()));
            assert!(after == before || after == 6, "{key} moved from {before} to {after}");
            counts[before] += 1;
        }
        assert!(counts.iter().all(|count| (500..=1700).contains(count)), "{counts:?}");
    }
}
