//! Rule Y9 of [`tidy`](crate::tidy): documents use the field's terms, and sentences of documents and comments name the actor and the thing
//! that they are about, instead of a pronoun. Code, fenced or between backticks, is not checked. Comments at the end of a line of code are
//! not checked.

/// Phrases of sentences that hide their subject, each with the remedy. Compared word by word in documents and comments; a phrase with a
/// capital letter matches only the beginning of a sentence.
const PATTERNS: &[(&str, &str)] = &[
    ("Of", "put the subject first"),
    ("who", "name the thread, process or user"),
    ("whom", "name the thread, process or user"),
    ("whoever", "name the thread, process or caller"),
    ("nobody", "no thread, no process"),
    ("somebody", "a thread, a process"),
    ("anybody", "a thread, a process"),
    ("what is", "name it"),
    ("what was", "name it"),
    ("what are", "name them"),
    ("what were", "name them"),
    ("so many", "this number of"),
    ("is told", "gets, or: the error says"),
    ("are told", "get, or: the error says"),
    ("was told", "got, or: the error says"),
    ("meets", "reads, finds, returns"),
    ("comes of", "follows from"),
    ("for good", "permanently"),
    ("as it were", "leave it out"),
    ("if so asked", "if the option is set"),
];

/// Words of the project's earlier vocabulary, each with its replacement. A phrase is compared word by word, in documents.
const TERMS: &[(&str, &str)] = &[
    ("look-up", "lookup"),
    ("look-ups", "lookups"),
    ("second look", "validation"),
    ("looks twice", "validates"),
    ("wave", "write group"),
    ("waves", "write groups"),
    ("seat", "thread slot"),
    ("seats", "thread slots"),
    ("goes home", "is checkpointed"),
    ("home words", "data words"),
    ("lap", "log generation"),
    ("laps", "log generations"),
    ("gives back", "frees"),
    ("given back", "freed"),
    ("takes back", "rolls back"),
    ("taken back", "rolled back"),
    ("discipline", "commit protocol"),
    ("disciplines", "commit protocols"),
    ("by halves", "by binary search"),
    ("argued mutant", "equivalent mutant"),
    ("argued mutants", "equivalent mutants"),
    ("contender", "competitor"),
    ("contenders", "competitors"),
    ("house", "engine"),
    ("keeper", "owner"),
    ("tender", "maintenance thread"),
];

/// The lines of a document without its code.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        let outside = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        (!fenced).then_some((number + 1, outside))
    })
}

/// The comments of a source file, one line for each of its lines. A line without a comment is empty.
fn comments(text: &str) -> String {
    let comment = |line: &str| {
        line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).to_owned())
    };
    text.lines().map(|line| comment(line).unwrap_or_default() + "\n").collect()
}

/// True if the words contain the phrase.
fn contains(words: &[&str], phrase: &str) -> bool {
    let phrase: Vec<&str> = phrase.split(' ').collect();
    let is_beginning = phrase[0].starts_with(char::is_uppercase);
    let fits = |word: &str, of_phrase: &str| {
        if is_beginning { word == of_phrase } else { word.eq_ignore_ascii_case(of_phrase) }
    };
    words
        .windows(phrase.len())
        .any(|window| window.iter().zip(&phrase).all(|(word, of_phrase)| fits(word, of_phrase)))
}

/// The problems of a document or of a source file's comments.
pub fn problems(name: &str, text: &str) -> Vec<String> {
    let is_source = name.ends_with(".rs");
    let text = if is_source { comments(text) } else { text.to_owned() };
    let terms = if is_source { &[][..] } else { TERMS };
    let mut found = Vec::new();
    for (number, line) in prose(&text) {
        let is_part = |c: char| c.is_alphanumeric() || c == '-';
        let words: Vec<&str> = line.split(|c| !is_part(c)).filter(|word| !word.is_empty()).collect();
        for (phrase, remedy) in PATTERNS.iter().chain(terms).filter(|(phrase, _)| contains(&words, phrase)) {
            found.push(format!("{name}:{number}: Y9: \"{phrase}\": {remedy}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_outside_of_code_are_found_with_their_line() {
        let text = "A House.\n```sh\nhouse\n```\nThe `house` is\ngiven back.\n";
        let found = problems("a.md", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.md:1: Y9") && found[1].starts_with("a.md:6: Y9"), "{found:?}");
        assert!(problems("a.md", "warehouse, overlap, elapsed\n").is_empty());
    }

    #[test]
    fn sentences_without_a_subject_are_found_in_comments_alone() {
        let text = "/// Of words the newest wins.\nlet what_is = \"nobody\"; // it is\n    // Returns what\n// is there, part of it.\n//! So MANY.\n";
        let found = problems("a.rs", text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a.rs:1: Y9") && found[1].starts_with("a.rs:5: Y9"), "{found:?}");
        assert_eq!(problems("a.md", "The thread who waits\n").len(), 1);
    }

    #[test]
    fn a_fence_in_a_comment_hides_its_code() {
        assert!(problems("a.rs", "/// ```text\n/// nobody\n/// ```\nfn f() {}\n").is_empty());
    }
}
