//! The process of one store: it opens the store, obeys the benchmark's orders, and measures itself.
//!
//! It ends at the end of its input. So it does not outlive the benchmark, even if the benchmark is killed.

use std::io::{self, Write as _};
use std::path::Path;
use std::process;
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use competitors::syncs::{self, Counter};
use competitors::{Competitor, KINDS, Options};

use crate::protocol::{Answer, Job, Order};
use crate::usage::{quiesce, written_bytes};
use crate::work::{Extent, Fault, PAIR_BYTES, Subject};
use crate::{OURS, open_ours};

/// Runs the process of a store until its input ends or it is ordered to close the store.
///
/// # Errors
/// If the input is no line of the protocol, or an answer cannot be written.
pub fn serve() -> io::Result<()> {
    let (send, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in io::stdin().lines() {
            if !line.is_ok_and(|line| send.send(line).is_ok()) {
                break;
            }
        }
        // The benchmark has ended.
        process::exit(1);
    });
    let job: Job = next(&lines)?;
    if !job.counts_syncs {
        return obey(&job, &lines, None);
    }
    match syncs::counted(move |counter| obey(&job, &lines, Some(counter))) {
        Ok(done) => done,
        Err(reason) => answer(&Answer::Uncounted(reason.to_string())),
    }
}

fn next<T: serde::de::DeserializeOwned>(lines: &Receiver<String>) -> io::Result<T> {
    let line = lines.recv().map_err(|_| io::Error::other("the input has ended"))?;
    Ok(serde_json::from_str(&line)?)
}

fn answer(answer: &Answer) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(answer)?)?;
    output.flush()
}

fn told(fault: &Fault) -> Answer {
    match fault {
        Fault::Wrong(what) => Answer::Wrong(what.clone()),
        fault => Answer::Failed(fault.to_string()),
    }
}

/// Opens the store. Reads one value if the store was written before.
fn open(job: &Job) -> Result<(Box<dyn Competitor>, f64), Fault> {
    let kind = std::iter::once(&OURS).chain(KINDS).find(|kind| kind.name == job.store);
    let kind = kind.ok_or_else(|| io::Error::other(format!("{} is not in this build", job.store)))?;
    let options = Options {
        promise: job.promise,
        bytes_max: job.keys * PAIR_BYTES,
        memory_bytes: Some(job.cache_bytes),
    };
    let start = Instant::now();
    let store = match job.direct_io {
        true => open_ours(&job.folder, &options, true)?,
        false => (kind.open)(&job.folder, &options)?,
    };
    if job.versions.is_some() {
        let key: competitors::pairs::Text = competitors::pairs::Random::numbered(job.seed, job.keys / 2);
        store.session()?.get(&key, &mut Vec::new())?;
    }
    Ok((store, start.elapsed().as_secs_f64()))
}

fn obey(job: &Job, lines: &Receiver<String>, counter: Option<&Counter>) -> io::Result<()> {
    let (store, seconds) = match open(job) {
        Ok(opened) => opened,
        Err(fault) => return answer(&told(&fault)),
    };
    let subject = Subject::new(store.as_ref(), job.keys, job.seed, job.versions.as_deref())?;
    answer(&Answer::Opened { seconds })?;
    loop {
        let done = match next(lines)? {
            Order::Measure { cell, seconds, operations_max } => {
                measure(&subject, Extent { cell, seconds, operations_max }, &job.folder, counter)
            }
            Order::Save(path) => subject.save(&path).map(|()| Answer::Done).map_err(Fault::from),
            Order::Verify => subject.verify().map(|()| Answer::Done),
            Order::Close => break,
        };
        answer(&done.unwrap_or_else(|fault| told(&fault)))?;
    }
    drop(subject);
    let closed = store.close();
    answer(&closed.map_or_else(|error| Answer::Failed(error.to_string()), |()| Answer::Done))
}

fn measure(
    subject: &Subject<'_>,
    extent: Extent,
    folder: &Path,
    counter: Option<&Counter>,
) -> Result<Answer, Fault> {
    let syncs = || counter.map(Counter::take).transpose();
    syncs()?;
    let before = written_bytes()?;
    let mut measured = subject.measure(extent)?;
    subject.store.settle()?;
    measured.syncs = syncs()?.map(|syncs| syncs.total());
    measured.is_idle = quiesce(folder)?;
    measured.written_bytes = u64::try_from(written_bytes()? - before).unwrap_or(0);
    Ok(Answer::Measured(measured))
}
