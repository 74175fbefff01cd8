//! The request parser with input cut at every byte and with hostile bytes. The commands do not depend on the cuts. Wrong input
//! gives an error. If input is incomplete, the parser waits for more. Memory is bounded, and there is no panic.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use server::resp::{ProtocolError, RequestLimits, RequestParser};

type Parsed = (Vec<Vec<Bytes>>, Option<ProtocolError>);

/// Feeds the pieces of an input. Returns the commands, and the error if there is one.
fn feed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Parsed {
    let mut parser = RequestParser::new(RequestLimits::default());
    let mut buffer = BytesMut::new();
    let mut commands = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match parser.next(&mut buffer) {
                Ok(Some(command)) => commands.push(command),
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fn whole(input: &[u8]) -> Parsed {
    feed([input])
}

fn words(command: &[Bytes]) -> Vec<&str> {
    command.iter().map(|word| std::str::from_utf8(word).unwrap()).collect()
}

/// Valid requests, each with its commands.
fn right() -> Vec<(&'static [u8], Vec<Vec<&'static str>>)> {
    vec![
        (b"*1\r\n$4\r\nPING\r\n", vec![vec!["PING"]]),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n", vec![vec!["SET", "k", ""]]),
        (b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\r\n\r\n", vec![vec!["GET", "\r\n\r\n"]]),
        (b"PING\r\n", vec![vec!["PING"]]),
        (b"PING\n", vec![vec!["PING"]]),
        (b"  SET  a \t b  \r\n", vec![vec!["SET", "a", "b"]]),
        (b"SET \"a b\\x41\\n\\\"\" 'c\\'d \\n' e'f'\r\n", vec![vec!["SET", "a bA\n\"", "c'd \\n", "ef"]]),
        (b"SET '' \"\"\r\n", vec![vec!["SET", "", ""]]),
        (b"\r\n\n*0\r\n*-1\r\nPING\r\n", vec![vec!["PING"]]),
        (
            b"*1\r\n$1\r\na\r\nb c\r\n*2\r\n$1\r\nd\r\n$2\r\nef\r\n",
            vec![vec!["a"], vec!["b", "c"], vec!["d", "ef"]],
        ),
    ]
}

#[test]
fn requests_give_their_commands() {
    for (input, expected) in right() {
        let (commands, error) = whole(input);
        assert_eq!(error, None, "{}", input.escape_ascii());
        let commands: Vec<_> = commands.iter().map(|command| words(command)).collect();
        assert_eq!(commands, expected, "{}", input.escape_ascii());
    }
}

/// Invalid requests, each with its error.
fn wrong() -> Vec<(Vec<u8>, ProtocolError)> {
    vec![
        (b"*-2\r\n".to_vec(), ProtocolError::ArrayLength),
        (b"*\r\n".to_vec(), ProtocolError::ArrayLength),
        (b"*+1\r\n".to_vec(), ProtocolError::ArrayLength),
        (b"*1x\r\n".to_vec(), ProtocolError::ArrayLength),
        (b"* 1\r\n".to_vec(), ProtocolError::ArrayLength),
        (b"*2000000\r\n".to_vec(), ProtocolError::ArrayLength),
        (b"*9223372036854775808\r\n".to_vec(), ProtocolError::ArrayLength),
        (b"*99999999999999999999\r\n".to_vec(), ProtocolError::ArrayLength),
        (b"*1\n$4\r\nPING\r\n".to_vec(), ProtocolError::HeaderEnd),
        (vec![b'*'; 40], ProtocolError::HeaderTooLong),
        ([b"*".as_slice(), &[b'0'; 40], b"1\r\n"].concat(), ProtocolError::HeaderTooLong),
        (b"*1\r\n$-1\r\n".to_vec(), ProtocolError::BulkLength),
        (b"*1\r\n$\r\n".to_vec(), ProtocolError::BulkLength),
        (b"*1\r\n$268435457\r\n".to_vec(), ProtocolError::BulkLength),
        (b"*1\r\n$99999999999999999\r\n".to_vec(), ProtocolError::BulkLength),
        (b"*1\r\n:4\r\nPING\r\n".to_vec(), ProtocolError::ExpectedBulk(b':')),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n".to_vec(), ProtocolError::ExpectedBulk(b'*')),
        (b"*1\r\n\x00".to_vec(), ProtocolError::ExpectedBulk(0)),
        (b"*1\r\n$4\r\nPINGxx".to_vec(), ProtocolError::BulkEnd),
        (b"*1\r\n$4\r\nPING\rx".to_vec(), ProtocolError::BulkEnd),
        (b"SET 'a\r\n".to_vec(), ProtocolError::Quotes),
        (b"SET \"a\r\n".to_vec(), ProtocolError::Quotes),
        (b"SET 'a'b\r\n".to_vec(), ProtocolError::Quotes),
        (b"\"\\\r\n".to_vec(), ProtocolError::Quotes),
        (vec![b'x'; 10 << 20], ProtocolError::InlineTooLong),
        ([vec![b'x'; 70_000], b"\r\n".to_vec()].concat(), ProtocolError::InlineTooLong),
    ]
}

#[test]
fn wrong_requests_are_errors_and_what_came_before_them_runs() {
    for (input, expected) in wrong() {
        let shown: String = input.iter().take(60).map(|byte| byte.escape_ascii().to_string()).collect();
        assert_eq!(whole(&input), (vec![], Some(expected)), "{shown}");
        let (commands, error) = whole(&[b"*1\r\n$4\r\nPING\r\n".as_slice(), &input].concat());
        assert_eq!(commands.len(), 1, "{shown}");
        assert!(error.is_some(), "{shown}");
    }
}

#[test]
fn a_cut_at_any_byte_changes_nothing() {
    let mut inputs: Vec<Vec<u8>> = right().into_iter().map(|(input, _)| input.to_vec()).collect();
    inputs.push(inputs.concat());
    inputs.extend(wrong().into_iter().map(|(input, _)| input).filter(|input| input.len() < 1000));
    for input in inputs {
        let expected = whole(&input);
        for cut in 0..=input.len() {
            let (first, second) = input.split_at(cut);
            assert_eq!(feed([first, second]), expected, "{} cut at {cut}", input.escape_ascii());
        }
        assert_eq!(feed(input.chunks(1)), expected, "{} by single bytes", input.escape_ascii());
    }
}

#[test]
fn the_longest_inline_line_fits_wherever_it_is_cut() {
    let line = [vec![b'x'; 64 << 10], b"\r\n".to_vec()].concat();
    for cut in line.len() - 4..line.len() {
        let (first, second) = line.split_at(cut);
        assert_eq!(feed([first, second]), whole(&line), "cut at {cut}");
    }
    assert_eq!(whole(&line).0.len(), 1);
}

#[test]
fn an_inline_command_has_as_many_arguments_as_an_array() {
    let limits = RequestLimits { arguments_max: 3, ..RequestLimits::default() };
    let next = |line: &[u8]| RequestParser::new(limits).next(&mut BytesMut::from(line));
    assert_eq!(next(b"MSET a b\r\n").map(|command| command.map(|arguments| arguments.len())), Ok(Some(3)));
    assert_eq!(next(b"MSET a b \"\"\r\n"), Err(ProtocolError::ArrayLength));
}

#[test]
fn what_is_declared_takes_no_memory_before_it_arrives() {
    let mut parser = RequestParser::new(RequestLimits::default());
    let mut buffer = BytesMut::from(b"*1048576\r\n$268435456\r\nabc".as_slice());
    assert_eq!(parser.next(&mut buffer), Ok(None));
    assert!(parser.held_bytes() < 10_000, "{} bytes held", parser.held_bytes());
    assert!(buffer.capacity() < 10_000, "{} bytes of space", buffer.capacity());
}

#[test]
fn a_command_is_bounded_as_a_whole() {
    let limits = RequestLimits { command_bytes_max: 10_000, ..RequestLimits::default() };
    let mut parser = RequestParser::new(limits);
    let mut buffer = BytesMut::from(b"*1000000\r\n".as_slice());
    let refused = (0..1_000_000).find_map(|_| {
        buffer.extend_from_slice(b"$0\r\n\r\n");
        parser.next(&mut buffer).err()
    });
    assert_eq!(refused, Some(ProtocolError::CommandTooLong(10_000)));
    assert!(parser.held_bytes() < 20_000, "{} bytes held", parser.held_bytes());
    let mut parser = RequestParser::new(limits);
    let mut buffer = BytesMut::from(b"*2\r\n$6000\r\n".as_slice());
    assert_eq!(parser.next(&mut buffer), Ok(None));
    buffer.extend_from_slice(&[b'x'; 6000]);
    buffer.extend_from_slice(b"\r\n$6000\r\n");
    assert_eq!(parser.next(&mut buffer), Err(ProtocolError::CommandTooLong(10_000)));
}

#[test]
fn a_million_arguments_byte_by_byte_take_linear_time() {
    let mut input = b"*1048576\r\n".to_vec();
    for _ in 0..1_048_576 {
        input.extend_from_slice(b"$1\r\nx\r\n");
    }
    // A quadratic parser would take hours.
    let (commands, error) = feed(input.chunks(1));
    assert_eq!(error, None);
    assert_eq!(commands[0].len(), 1_048_576);
}

/// Fragments of the protocol, so that random input gets past the first byte.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"*".to_vec()),
        Just(b"$".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"'".to_vec()),
        Just(b"\\x4".to_vec()),
        Just(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n".to_vec()),
        (-2_i64..5).prop_map(|number| format!("*{number}\r\n").into_bytes()),
        (-2_i64..5).prop_map(|number| format!("${number}\r\n").into_bytes()),
        any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..6),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_never_panic_and_cuts_change_nothing(
        fragments in proptest::collection::vec(fragment(), 0..20), piece in 1_usize..9
    ) {
        let input = fragments.concat();
        prop_assert_eq!(feed(input.chunks(piece)), whole(&input));
    }

    #[test]
    fn every_command_survives_its_encoding(
        command in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..6), piece in 1_usize..50
    ) {
        let mut input = format!("*{}\r\n", command.len()).into_bytes();
        for argument in &command {
            input.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            input.extend_from_slice(argument);
            input.extend_from_slice(b"\r\n");
        }
        let (parsed, error) = feed(input.chunks(piece));
        prop_assert_eq!(error, None);
        prop_assert_eq!(parsed.len(), 1);
        prop_assert_eq!(parsed[0].iter().map(|argument| argument.to_vec()).collect::<Vec<_>>(), command);
    }
}
