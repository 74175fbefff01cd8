//! Patterns of KEYS and SCAN: `*`, `?`, `[abc]`, `[^a-z]`, and `\` to escape a character.
//!
//! Invariant: matching takes at most (length of pattern) × (length of text) steps, because only the last `*` is tried again. So no pattern
//! can block the server.

/// True if the whole of `text` matches `pattern`.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (0, 0);
    // The last `*`, to try a longer match of it: (position after it in the pattern, position in the text where its match ends).
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            retry = Some((at, seen));
            continue;
        }
        if seen == text.len() && at == pattern.len() {
            return true;
        }
        let step = match (pattern.get(at..).filter(|rest| !rest.is_empty()), text.get(seen)) {
            (Some(rest), Some(&byte)) => one(rest, byte),
            _ => None,
        };
        match (step, retry) {
            (Some(length), _) => {
                at += length;
                seen += 1;
            }
            (None, Some((behind, taken))) if taken < text.len() => {
                retry = Some((behind, taken + 1));
                (at, seen) = (behind, taken + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Matches one byte against the first element of a pattern, which is not empty and does not start with `*`. Returns the element's length if
/// the byte matches.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => {
            let (fits, length) = class(rest, byte);
            fits.then_some(1 + length)
        }
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// Matches a byte against a class after its `[`. Returns whether it matches, and the length of the class with its `]`. A class without `]`
/// extends to the end of the pattern.
fn class(pattern: &[u8], byte: u8) -> (bool, usize) {
    let negated = pattern.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    while let Some(rest) = pattern.get(at..).filter(|rest| !rest.is_empty()) {
        match rest {
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= *escaped == byte;
                at += 2;
            }
            [from, b'-', to, ..] if *to != b']' => {
                found |= (*from.min(to)..=*from.max(to)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= *literal == byte;
                at += 1;
            }
            [] => break,
        }
    }
    (found != negated, at)
}

/// The prefix that all matching texts have.
#[must_use]
pub fn literal_prefix(pattern: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    let mut rest = pattern;
    loop {
        match rest {
            [b'*' | b'?' | b'[', ..] | [] => return prefix,
            [b'\\', escaped, ..] => {
                prefix.push(*escaped);
                rest = &rest[2..];
            }
            [literal, ..] => {
                prefix.push(*literal);
                rest = &rest[1..];
            }
        }
    }
}

/// The smallest key after all keys with this prefix; `None` if there is none.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_clients_expect() {
        let fits = [
            ("*", ""),
            ("*", "abc"),
            ("", ""),
            ("h?llo", "hallo"),
            ("h*llo", "heeeello"),
            ("h*l*o", "hello world o"),
            ("h[ae]llo", "hello"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[c-a]llo", "hbllo"),
            ("h\\*llo", "h*llo"),
            ("[\\]]", "]"),
            ("[a-]", "-"),
            ("**a**", "bab"),
            ("a[bc", "ab"),
            ("a\\", "a\\"),
        ];
        for (pattern, text) in fits {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} should match {text}");
        }
        let misfits = [
            ("", "a"),
            ("?", ""),
            ("h?llo", "hllo"),
            ("h[ae]llo", "hillo"),
            ("h[^e]llo", "hello"),
            ("h\\*llo", "hallo"),
            ("*a", "ab"),
            ("[]", "a"),
            ("abc", "ab"),
        ];
        for (pattern, text) in misfits {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} should not match {text}");
        }
    }

    #[test]
    fn many_stars_do_not_stall() {
        let pattern = "*a".repeat(5_000) + "b";
        let text = vec![b'a'; 20_000];
        assert!(!matches(pattern.as_bytes(), &text));
    }

    #[test]
    fn prefixes_bound_what_can_match() {
        assert_eq!(literal_prefix(b"user:*"), b"user:");
        assert_eq!(literal_prefix(b"a\\*b?"), b"a*b");
        assert_eq!(literal_prefix(b"*"), b"");
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }

    proptest::proptest! {
        #[test]
        fn every_match_starts_with_the_literal_prefix(
            pattern in "[ab*?\\[\\]^\\\\-]{0,8}", text in "[ab\\[\\]^-]{0,8}"
        ) {
            if matches(pattern.as_bytes(), text.as_bytes()) {
                proptest::prop_assert!(text.as_bytes().starts_with(&literal_prefix(pattern.as_bytes())));
            }
        }
    }
}
