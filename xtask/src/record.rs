//! The record of soaks, `docs/records/soak.json`: the last result of each campaign.
//!
//! The file is one JSON object. `campaigns` maps a campaign's name to `commit`, `seed`, `ended` (seconds since 1970), `seconds`, `passed`,
//! and `figures`. `figures` is the JSON output of the last run of the campaign with its first seed, and the commit of that run. It is null
//! if there was no such run.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::run::root;

fn path() -> PathBuf {
    root().join("docs/records/soak.json")
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The result of a campaign.
pub struct Result {
    /// The tested commit.
    pub commit: String,
    /// Seed of the last run.
    pub seed: u64,
    /// Seconds of all runs in this slice.
    pub seconds: u64,
    /// True if every run passed.
    pub passed: bool,
    /// JSON output of the run with the first seed, with its commit. Null if there was no such run.
    pub figures: Value,
}

/// All results, by campaign.
#[derive(Default)]
pub struct Record(BTreeMap<String, Value>);

impl Record {
    /// Reads the file. A missing file is an empty record.
    ///
    /// # Errors
    /// A message with the path if the file is not a record.
    pub fn read() -> std::result::Result<Self, String> {
        let text = match fs::read_to_string(path()) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(format!("cannot read {}: {error}", path().display())),
        };
        Self::parse(&text).map_err(|why| format!("{}: {why}: delete it to start anew", path().display()))
    }

    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let all: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let campaigns = all.get("campaigns").and_then(Value::as_object).ok_or("it has no campaigns")?;
        Ok(Self(campaigns.iter().map(|(name, result)| (name.clone(), result.clone())).collect()))
    }

    /// JSON output of the campaign `name` with the first seed. `None` if there is no record of it.
    pub fn figures(&self, name: &str) -> Option<&Value> {
        self.0.get(name).map(|result| &result["figures"]).filter(|figures| figures.is_object())
    }

    /// Names of the campaigns on record.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Adds a result. If it has no figures, the campaign keeps its earlier ones, which name their own commit.
    fn add(&mut self, campaign: &str, result: Result) {
        let Result { commit, seed, seconds, passed, figures } = result;
        let earlier = || self.figures(campaign).cloned().unwrap_or_default();
        let figures = if figures.is_null() { earlier() } else { figures };
        let added = json!({
            "commit": commit, "seed": seed, "ended": now(), "seconds": seconds, "passed": passed, "figures": figures,
        });
        self.0.insert(campaign.to_owned(), added);
    }

    /// Adds a result to the file. Results that another soak added meanwhile stay.
    ///
    /// # Errors
    /// The file is not a record, or cannot be written.
    pub fn note(campaign: &str, result: Result) -> std::result::Result<(), String> {
        let mut record = Self::read()?;
        record.add(campaign, result);
        let text = serde_json::to_string_pretty(&json!({ "campaigns": record.0 }))
            .map_err(|error| error.to_string())?;
        let path = path();
        let fail = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(&path)).map_err(fail)?;
        fs::write(&path, text + "\n").map_err(fail)
    }

    /// A sentence about the oldest result.
    fn age(&self, now: u64) -> String {
        let ended = |result: &Value| result.get("ended").and_then(Value::as_u64).unwrap_or(0);
        let Some((name, oldest)) = self.0.iter().min_by_key(|(_, result)| ended(result)) else {
            return "no soak is on record: run cargo xtask soak".to_owned();
        };
        let failed: Vec<&str> = self
            .0
            .iter()
            .filter(|(_, result)| result["passed"] != true)
            .map(|(name, _)| name.as_str())
            .collect();
        let commit = oldest.get("commit").and_then(Value::as_str).unwrap_or("unknown");
        let days = now.saturating_sub(ended(oldest)) / 86_400;
        let verdict = if failed.is_empty() {
            "all passed".to_owned()
        } else {
            format!("FAILED: {}", failed.join(", "))
        };
        format!(
            "last soak: {} campaigns on record, {verdict}; the oldest result is {name}'s, {days} days old, of commit {}",
            self.0.len(),
            commit.get(..12).unwrap_or(commit)
        )
    }
}

/// The message of `test` about the last soak.
pub fn age() -> String {
    Record::read().map_or_else(|why| why, |record| record.age(now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_result_and_each_failure_are_told() {
        let text = r#"{"campaigns": {
            "a": {"commit": "0123456789abcdef", "ended": 86400, "passed": true},
            "b": {"commit": "fedcba9876543210", "ended": 172800, "passed": false}}}"#;
        let age = Record::parse(text).unwrap().age(4 * 86_400);
        assert!(age.contains("2 campaigns") && age.contains("FAILED: b"), "{age}");
        assert!(age.ends_with("a's, 3 days old, of commit 0123456789ab"), "{age}");
        assert!(Record::default().age(1).contains("no soak"));
        assert!(Record::parse("{}").is_err() && Record::parse("nonsense").is_err());
    }

    #[test]
    fn a_result_without_figures_leaves_the_earlier_ones() {
        let result = |seed, figures| Result { commit: "b".into(), seed, seconds: 1, passed: true, figures };
        let mut record = Record::default();
        record.add("a", result(1, json!({ "states": 5, "commit": "a" })));
        record.add("a", result(2, Value::Null));
        assert_eq!(record.figures("a").unwrap()["states"], 5);
        assert_eq!((&record.0["a"]["seed"], &record.0["a"]["figures"]["commit"]), (&json!(2), &json!("a")));
        record.add("b", result(1, Value::Null));
        assert!(record.figures("b").is_none());
    }

    #[test]
    fn the_committed_record_can_be_read() {
        Record::read().unwrap();
    }
}
