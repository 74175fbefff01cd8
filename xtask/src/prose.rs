//! Rule Y9 of [`tidy`](crate::tidy): documents use the field's terms. Code, fenced or between backticks, is not checked.

/// Forbidden words, each with its replacement. A phrase is compared word by word.
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
    ("whoever", "the thread, the caller"),
    ("nobody", "no thread, no process"),
    ("somebody", "a thread, a process"),
    ("anybody", "a thread, a process"),
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

/// Lines with a forbidden word, with the word and its replacement.
pub fn problems(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let is_part = |c: char| c.is_alphanumeric() || c == '-';
        let words: Vec<String> =
            line.split(|c| !is_part(c)).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        for (term, instead) in TERMS {
            let term_words: Vec<&str> = term.split(' ').collect();
            if words.windows(term_words.len()).any(|window| window.iter().eq(&term_words)) {
                found.push(format!("{name}:{number}: Y9: \"{term}\": write \"{instead}\""));
            }
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
}
