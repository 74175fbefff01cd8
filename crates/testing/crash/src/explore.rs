//! Explores a whole workload (create, steps, close): each is recorded, replayed on the model, and explored at its crash points.
//!
//! The crash points of a step are before every fence that follows a store of the same step, and at the step's end. A store only adds
//! possible images (see [`crate::line`]), so a crash point covers every instant since the previous one. After the end of a step the
//! operation is acknowledged, and the oracle allows fewer contents than during it. So the end is always explored.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use pmem::{Memory, Observed};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

use crate::erased::{AnyOp, AnySubject, AnyWorkload, Live, Operation};
use crate::judge::{Expect, quietly};
use crate::line::Words;
use crate::model::{Model, Undo, fingerprint, put, words};
use crate::mutate::{Discovery, Mutant};
use crate::points::Mutated;
use crate::report::{Crash, Phase, Report};
use crate::search::{Scene, Search};
use crate::stage::{Open, Stage};
use crate::subject::{Contents, Step, Subject, Workload};
use crate::tape::{Recorded, Tape};

/// The extent of an exploration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed of everything random: samples, capped lines, cut steps.
    pub seed: u64,
    /// Maximum number of images explored exhaustively at one crash point.
    pub cap: usize,
    /// The same at one crash point inside recovery.
    pub nested_cap: usize,
    /// Number of random images explored at a crash point with more images than its cap. Inside recovery at most `nested_cap`.
    pub samples: usize,
    /// Maximum number of contents of one line.
    pub line_cap: usize,
    /// Crash inside recovery, too.
    pub nested: bool,
    /// Skip an image inside recovery from which the subject would read the same contents as from an image judged before.
    pub recall: bool,
    /// Crash before every store, too. The other points cover these, so it is for tiny cases only.
    pub every_store: bool,
    /// Run a few operations after recovery.
    pub continuation: bool,
    /// Crash inside create.
    pub create: bool,
    /// Crash inside the clean close.
    pub close: bool,
    /// Maximum number of reads and stores on one image. An image with more counts as an endless loop.
    pub steps_max: u64,
    /// Stop after this number of violations.
    pub violations_max: usize,
    /// Explore only this image.
    pub only: Option<Crash>,
    /// Record the explored crash points in the report.
    pub remember: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 1,
            cap: 4096,
            nested_cap: 256,
            samples: 256,
            line_cap: 1024,
            nested: true,
            recall: true,
            every_store: false,
            continuation: true,
            create: true,
            close: true,
            steps_max: 20_000_000,
            violations_max: 1,
            only: None,
            remember: false,
        }
    }
}

/// Explores a workload and returns its report.
pub fn explore<S: Subject>(workload: &Workload<S>, options: &Options) -> Report {
    explore_mutant(workload, options, None)
}

/// Explores workloads one after the other, until [`Options::violations_max`] violations are found.
pub fn explore_all<S: Subject>(workloads: &[Workload<S>], options: &Options) -> Report {
    let mut total = Report::default();
    for workload in workloads {
        if total.violations.len() >= options.violations_max {
            break;
        }
        total.merge(explore(workload, options));
    }
    total
}

/// The contents that a crash inside an operation may leave.
fn during<'a>(op: &dyn Operation, before: &'a Contents, after: &'a Contents) -> Expect<'a> {
    if op.is_divisible() { Expect::mixture(before, after) } else { Expect::either(before, after) }
}

/// Explores a workload as if its code had been changed by `mutant`. An injected fault is a mutant that the exploration must detect: its
/// report must have a violation.
pub fn explore_mutant<S: Subject>(
    workload: &Workload<S>,
    options: &Options,
    mutant: Option<Mutant>,
) -> Report {
    explore_changed(workload, options, mutant.map(Mutated::from))
}

/// Like [`explore_mutant`], without the crash points where the mutant is known to change nothing.
pub fn explore_changed<S: Subject>(
    workload: &Workload<S>,
    options: &Options,
    mutated: Option<Mutated>,
) -> Report {
    explore_any(&AnyWorkload::of(workload), options, mutated)
}

fn explore_any(workload: &AnyWorkload, options: &Options, mutated: Option<Mutated>) -> Report {
    let start = Instant::now();
    let mut run = Run::new(workload, options, mutated);
    if let Err(failure) = run.workload(workload) {
        run.search.violation(failure.phase, &failure.name, None, failure.message);
    }
    let mut report = run.search.report;
    report.elapsed = start.elapsed();
    report
}

/// A failure of the subject without a crash or after a cut step.
struct Failure {
    phase: Phase,
    name: String,
    message: String,
}

/// A run of one workload: the live subject's memory and tape, the model of the durable state, and the search.
struct Run<'a> {
    live: Arc<Memory>,
    tape: Arc<Tape>,
    model: Model,
    contents: Contents,
    len: u64,
    /// Fingerprints of the workload's configuration and of the durable words.
    config: u128,
    durable: u128,
    discovery: Discovery,
    search: Search<'a>,
}

/// A recorded step and its expectations.
struct Played<'a> {
    phase: Phase,
    name: &'a str,
    during: Expect<'a>,
    end: Expect<'a>,
    continuation: &'a [AnyOp],
}

impl<'a> Run<'a> {
    fn new(workload: &'a AnyWorkload, options: &'a Options, mutated: Option<Mutated>) -> Self {
        let (len, capacity) = workload.config.size();
        let live = Memory::new(capacity, len);
        let stage = Stage::new(capacity, len, options.steps_max);
        let search = Search { stage, config: &*workload.config, options, mutated, report: Report::default() };
        let config = xxh3_128(workload.config.name().as_bytes());
        let model = Model::new(options.line_cap, options.seed);
        let (tape, contents, discovery) = (Tape::new(live.clone()), Contents::new(), Discovery::default());
        Self { live, tape, model, contents, len, config, durable: 0, discovery, search }
    }

    fn medium(&self) -> Observed {
        Observed::new(self.live.clone(), self.tape.clone())
    }

    fn continuation(&self, op: Option<&AnyOp>) -> Vec<AnyOp> {
        op.filter(|_| self.search.options.continuation).map(|op| op.continuation()).unwrap_or_default()
    }

    fn workload(&mut self, workload: &AnyWorkload) -> Result<(), Failure> {
        let mut subject = self.create(workload)?;
        for op in &workload.prepare {
            let fail =
                |message| Failure { phase: Phase::Create, name: format!("prepare {}", op.name()), message };
            quietly(|| subject.apply(&**op)).map_err(fail)?;
            op.apply_model(&mut self.contents);
            let events = self.take_events();
            self.replay(events, None);
        }
        for (index, step) in workload.steps.iter().enumerate() {
            if self.search.is_over() {
                return Ok(());
            }
            let (phase, name) = (Phase::Step(index), step.op().name());
            let played = match step {
                Step::Run(op) => self.run(&mut *subject, op, phase, &name),
                Step::Cut(op) => match self.cut(subject, op, phase, &name) {
                    Ok(recovered) => {
                        subject = recovered;
                        Ok(())
                    }
                    Err(message) => return Err(Failure { phase, name, message }),
                },
            };
            played.map_err(|message| Failure { phase, name, message })?;
        }
        if self.search.is_over() {
            return Ok(());
        }
        self.close(subject, workload.steps.last().map(Step::op))
    }

    fn create(&mut self, workload: &AnyWorkload) -> Result<AnySubject, Failure> {
        let name = format!("create {}", workload.config.name());
        let (phase, empty) = (Phase::Create, Contents::new());
        let subject = quietly(|| workload.config.create(self.medium())).map_err(|message| Failure {
            phase,
            name: name.clone(),
            message,
        })?;
        let continuation = self.continuation(workload.steps.first().map(Step::op));
        let played = Played {
            phase,
            name: &name,
            during: Expect::unborn(&empty),
            end: Expect::exactly(&empty),
            continuation: &continuation,
        };
        let events = self.take_events();
        self.replay(events, self.search.options.create.then_some(&played));
        Ok(subject)
    }

    fn run(&mut self, subject: &mut dyn Live, op: &AnyOp, phase: Phase, name: &str) -> Result<(), String> {
        let before = self.contents.clone();
        quietly(|| subject.apply(&**op))?;
        let events = self.take_events();
        op.apply_model(&mut self.contents);
        let after = self.contents.clone();
        let continuation = self.continuation(Some(op));
        let (during, end) = (during(&**op, &before, &after), Expect::exactly(&after));
        if !events.is_empty() || before != after {
            let played = Played { phase, name, during, end, continuation: &continuation };
            self.replay(events, Some(&played));
        }
        self.verify_live(subject, &end).map(|_| ())
    }

    /// Cuts `op` short, crashes, recovers one random image, and returns the recovered subject.
    fn cut(
        &mut self,
        mut subject: AnySubject,
        op: &AnyOp,
        phase: Phase,
        name: &str,
    ) -> Result<AnySubject, String> {
        let before = self.contents.clone();
        let mut after = before.clone();
        quietly(|| subject.apply(&**op))?;
        drop(subject);
        op.apply_model(&mut after);
        let mut rng = fastrand::Rng::with_seed(self.search.options.seed ^ ((self.tape_number(phase)) << 20));
        let mut events = self.take_events();
        self.discovery.discover(&events, &mut self.search.report.mutants);
        events = self.search.seen_by_model(events);
        let kept = rng.usize(..=events.len());
        let expect =
            if kept == events.len() { Expect::exactly(&after) } else { during(&**op, &before, &after) };
        events.truncate(kept);
        self.replay_quietly(&events);
        self.crash(&mut rng);

        let recovered = quietly(|| self.search.config.recover(self.medium()))
            .map_err(|message| format!("cut after {kept} events: does not recover: {message}"))?;
        let events = self.take_events();
        let seen = self
            .verify_live(&*recovered, &expect)
            .map_err(|message| format!("cut after {kept} events: {message}"))?;
        let continuation = self.continuation(Some(op));
        let end = Expect::exactly(&seen);
        self.replay(events, Some(&Played { phase, name, during: expect, end, continuation: &continuation }));
        self.contents = seen;
        Ok(recovered)
    }

    fn close(&mut self, subject: AnySubject, last: Option<&AnyOp>) -> Result<(), Failure> {
        let (phase, name) = (Phase::Close, "close");
        quietly(|| subject.close()).map_err(|message| Failure { phase, name: name.to_owned(), message })?;
        let contents = self.contents.clone();
        let continuation = self.continuation(last);
        let expect = Expect::exactly(&contents);
        let played = Played { phase, name, during: expect, end: expect, continuation: &continuation };
        let events = self.take_events();
        self.replay(events, self.search.options.close.then_some(&played));
        // Recovery may repair lines that a close left unflushed. A copy of the closed file has no recovery.
        let looks = self.search.options.close && self.search.report.violations.is_empty();
        match self.model.open().first() {
            Some((line, _)) if looks => {
                let message = format!("line {line:#x} is not durable after a clean close");
                Err(Failure { phase, name: name.to_owned(), message })
            }
            _ => Ok(()),
        }
    }

    fn tape_number(&self, phase: Phase) -> u64 {
        match phase {
            Phase::Create => 0,
            Phase::Step(index) => index as u64 + 1,
            Phase::Close => u64::MAX,
        }
    }

    fn take_events(&self) -> Vec<Recorded> {
        self.tape.take()
    }

    fn verify_live(&self, subject: &dyn Live, expect: &Expect<'_>) -> Result<Contents, String> {
        let seen = quietly(|| subject.verify())?;
        expect.check(&seen)?;
        match self.tape.take().iter().find(|recorded| recorded.is_store()) {
            Some(recorded) => Err(format!("verify stores: {:?}", recorded.event)),
            None => Ok(seen),
        }
    }

    /// Replays a step on the model. Explores its crash points if `played` is given.
    fn replay(&mut self, events: Vec<Recorded>, played: Option<&Played<'_>>) {
        let Some(played) = played else {
            // Its mutants are not tried, but a later flush may cover lines that it left unflushed.
            self.discovery.discover(&events, &mut BTreeSet::new());
            let events = self.search.seen_by_model(events);
            return self.replay_quietly(&events);
        };
        self.discovery.discover(&events, &mut self.search.report.mutants);
        let events = self.search.seen_by_model(events);
        let &Played { phase, name, continuation, .. } = played;
        let during = Scene::new(phase, name, played.during, continuation);
        self.search.forget();
        let mut stored = false;
        for (event, recorded) in events.iter().enumerate() {
            self.len = self.len.max(recorded.len);
            let here = recorded.is_fence() || (self.search.options.every_store && recorded.is_store());
            if here && std::mem::take(&mut stored) {
                self.point(&during, event);
            }
            self.replay_quietly(std::slice::from_ref(recorded));
            stored |= recorded.is_store();
        }
        self.len = self.live.len();
        self.point(&Scene::new(phase, name, played.end, continuation), events.len());
    }

    fn point(&mut self, scene: &Scene<'_>, event: usize) {
        let fingerprint = self.fingerprint(scene);
        if let Some(mutated) = &self.search.mutated
            && mutated.known.is_known(fingerprint, &mutated.mutant)
        {
            self.search.report.unchanged_points += 1;
            return;
        }
        let open = Open { lines: self.model.open(), len: self.len };
        let in_recovery = self.search.point(scene, open, event);
        if self.search.options.remember {
            self.search.report.points.add(fingerprint, in_recovery);
        }
    }

    /// The fingerprint of a crash at this point. Equal fingerprints imply the same images and the same verdicts.
    fn fingerprint(&self, scene: &Scene<'_>) -> u128 {
        let mut hash = Xxh3Default::new();
        [self.config, self.durable, scene.expected].iter().for_each(|part| hash.update(&part.to_le_bytes()));
        hash.update(&self.len.to_le_bytes());
        hash.update(scene.name.as_bytes());
        for op in scene.continuation {
            hash.update(&[0]);
            hash.update(op.name().as_bytes());
        }
        self.model.fingerprint(&mut hash);
        hash.digest128()
    }

    /// Updates the fingerprint after a line's durable content changed from `before`.
    fn grounded(&mut self, line: u64, before: &Words) {
        let now = words(self.search.stage.memory(), line);
        self.durable =
            self.durable.wrapping_sub(fingerprint(line, before)).wrapping_add(fingerprint(line, &now));
    }

    fn replay_quietly(&mut self, events: &[Recorded]) {
        let mut undo = Undo::new();
        let memory = self.search.stage.memory().clone();
        for recorded in events {
            self.len = self.len.max(recorded.len);
            memory.set_len(self.len);
            self.model.apply(&recorded.event, &memory, &mut undo);
            undo.drain(..).for_each(|(line, before)| self.grounded(line, &before));
        }
    }

    /// Chooses a random content for every open line, and makes the image the live memory.
    fn crash(&mut self, rng: &mut fastrand::Rng) {
        let image = &self.search.stage.memory().clone();
        image.set_len(self.len);
        for (line, choices) in self.model.open() {
            let before = words(image, line);
            put(image, line, &choices.contents[rng.usize(..choices.contents.len())]);
            self.grounded(line, &before);
        }
        self.model.settle();
        self.discovery = Discovery::default();
        image.set_len(image.capacity());
        self.live.set_len(self.live.capacity());
        for line in (0..image.capacity()).step_by(pmem::LINE as usize) {
            put(&self.live, line, &words(image, line));
        }
        image.set_len(self.len);
        self.live.set_len(self.len);
    }
}
