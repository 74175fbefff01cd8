//! Searches all images of one crash point, and of the crash points inside the recovery from each image.
//!
//! A vector of choices determines an image. The search executes the oracle once for each image. Afterwards the search advances the last
//! choice that has an untried content, and drops all choices after it: a depth-first walk over exactly the choices that the execution
//! needed. A crash point with far more images than its cap is sampled instead. An image inside recovery is not executed if the subject
//! would read the same contents as from an earlier image (`recall`).
//!
//! Inside recovery, the search replays recovery's own events on a second model. The base of this model is the image as far as recovery had
//! read it. If recovery had not read a line before the second crash, the contents of that line from the first crash are still undecided,
//! and recovery's own stores come on top of each of them. If two images agree on their first `n` choices, their recoveries agree until one
//! of them needs a further choice. So the crash points inside that common part are explored for one of the two images only. After the end
//! of recovery, a reader may have seen the recovered contents. So later recoveries must keep exactly these contents.

use std::collections::BTreeSet;
use std::sync::Arc;

use pmem::{Event, LINE};

use crate::erased::{AnyOp, Config};
use crate::explore::Options;
use crate::judge::{Expect, Judged, judge, quietly};
use crate::model::{Model, Undo, put, rewind, words};
use crate::mutate::{Discovery, Mutant};
use crate::points::Mutated;
use crate::report::{Crash, Phase, Report, Violation, Worst};
use crate::stage::{Beyond, Open, Stage, Taken};
use crate::tape::Recorded;

/// Number of images of a crash point after which the search estimates whether the rest fits the cap. A capped exhaustive search covers only
/// the first contents of the first lines. If there are far more images, random ones cover more, sooner.
const PATIENCE: usize = 256;

/// The properties that all images of a crash point share.
pub(crate) struct Scene<'a> {
    /// The phase of the workload.
    pub phase: Phase,
    /// Text of the operation in flight.
    pub name: &'a str,
    expect: Expect<'a>,
    /// Fingerprint of the expected contents.
    pub expected: u128,
    /// Operations run after recovery.
    pub continuation: &'a [AnyOp],
}

impl<'a> Scene<'a> {
    /// The images of this phase may hold the contents of `expect`. `continuation` runs after recovery.
    pub fn new(phase: Phase, name: &'a str, expect: Expect<'a>, continuation: &'a [AnyOp]) -> Self {
        Self { phase, name, expect, expected: expect.fingerprint(), continuation }
    }
}

/// The search's state: the stage, the options, and the report so far.
pub(crate) struct Search<'a> {
    pub(crate) stage: Arc<Stage>,
    pub(crate) config: &'a dyn Config,
    pub(crate) options: &'a Options,
    pub(crate) mutated: Option<Mutated>,
    pub(crate) report: Report,
}

/// The image whose recovery crashes.
struct Outer<'a> {
    event: usize,
    choices: &'a [usize],
}

/// A crash point, in a step or inside recovery.
struct Point<'a> {
    scene: &'a Scene<'a>,
    open: &'a Open,
    event: usize,
    outer: Option<&'a Outer<'a>>,
}

impl Point<'_> {
    fn crash(&self, taken: &[Taken]) -> Crash {
        let choices = taken.iter().map(|taken| taken.choice).collect();
        let phase = self.scene.phase;
        match self.outer {
            None => Crash { phase, event: self.event, choices, inside: None },
            Some(outer) => Crash {
                phase,
                event: outer.event,
                choices: outer.choices.to_vec(),
                inside: Some((self.event, choices)),
            },
        }
    }
}

impl Search<'_> {
    /// True if the maximum number of violations is reached.
    pub(crate) fn is_over(&self) -> bool {
        self.report.violations.len() >= self.options.violations_max
    }

    /// Applies the mutant, if any, to the events for the durability model.
    pub(crate) fn seen_by_model(&self, events: Vec<Recorded>) -> Vec<Recorded> {
        match &self.mutated {
            Some(mutated) => mutated.mutant.rewrite(events),
            None => events,
        }
    }

    pub(crate) fn violation(&mut self, phase: Phase, name: &str, crash: Option<Crash>, message: String) {
        self.report.violations.push(Violation {
            phase,
            op: name.to_owned(),
            crash,
            message,
            seed: self.options.seed,
            mutant: self.mutated.as_ref().map(|mutated| mutated.mutant),
        });
    }

    /// Forgets all judged images. The caller does this before the continuation or the expected contents change.
    pub(crate) fn forget(&mut self) {
        self.stage.forget();
    }

    /// Explores a crash just before `event` with these open lines. Returns the mutants that would have changed events of the recovery from
    /// one of its images.
    pub(crate) fn point(&mut self, scene: &Scene<'_>, open: Open, event: usize) -> BTreeSet<Mutant> {
        let only = self.options.only.as_ref();
        if only.is_some_and(|only| (only.phase, only.event) != (scene.phase, event)) || self.is_over() {
            return BTreeSet::new();
        }
        let outside = std::mem::take(&mut self.report.mutants);
        self.report.crash_points += 1;
        let before = self.report.images;
        self.images(&Point { scene, open: &open, event, outer: None });
        let images = self.report.images - before;
        if self.report.worst.is_none_or(|worst| images > worst.images) {
            self.report.worst = Some(Worst { phase: scene.phase, event, images });
        }
        let in_recovery = std::mem::replace(&mut self.report.mutants, outside);
        self.report.mutants.extend(&in_recovery);
        in_recovery
    }

    fn images(&mut self, point: &Point<'_>) {
        let capped = point.open.lines.iter().filter(|(_, choices)| choices.capped);
        self.report.capped_lines += capped.count() as u64;
        let cap = if point.outer.is_none() { self.options.cap } else { self.options.nested_cap };
        let previous = self.stage.install(point.open.clone());
        let mut script = match (&self.options.only, point.outer) {
            (None, _) => Vec::new(),
            (Some(only), None) => only.choices.clone(),
            (Some(only), Some(_)) => {
                only.inside.as_ref().map(|(_, choices)| choices.clone()).unwrap_or_default()
            }
        };
        let (mut shared, mut last) = (None, Vec::new());
        for image in 1.. {
            let violations = self.report.violations.len();
            let taken = self.image(point, script, Beyond::First, shared);
            if !same_lines(&last, &taken, shared) {
                let message = "the subject is not deterministic: the same image was read in another order";
                self.violation(
                    point.scene.phase,
                    point.scene.name,
                    Some(point.crash(&taken)),
                    message.to_owned(),
                );
            }
            let advanced = if self.is_over() || self.options.only.is_some() { None } else { advance(&taken) };
            let Some(next) = advanced else { break };
            if image >= cap {
                // If samples were already taken after `PATIENCE` images, more would add nothing.
                if image <= PATIENCE {
                    self.sample(point);
                }
                self.count_sampled(point);
                break;
            }
            if image == PATIENCE && (self.sample(point) > 2.0 * cap as f64 || self.is_over()) {
                self.count_sampled(point);
                break;
            }
            // The search does not crash inside the recovery of a broken image, so the next image cannot share its crash points.
            let broken = self.report.violations.len() > violations;
            shared = (!broken).then_some(next.len() - 1);
            (script, last) = (next, taken);
        }
        self.stage.install(previous);
    }

    fn count_sampled(&mut self, point: &Point<'_>) {
        match point.outer {
            None => self.report.sampled_points += 1,
            Some(_) => self.report.nested_sampled_points += 1,
        }
    }

    /// Judges images with random choices, at a crash point that has many images. Returns an estimate of their number: the mean, over the
    /// samples, of the product of the numbers of contents that the sample chose from (Knuth 1975; unbiased).
    fn sample(&mut self, point: &Point<'_>) -> f64 {
        let most = if point.outer.is_none() { usize::MAX } else { self.options.nested_cap };
        let samples = self.options.samples.min(most);
        let place = self.report.crash_points ^ (self.report.nested_points << 32);
        let mut rng = fastrand::Rng::with_seed(self.options.seed ^ place);
        let mut sum = 0.0;
        for _ in 0..samples {
            if self.is_over() {
                break;
            }
            let taken = self.image(point, Vec::new(), Beyond::Random(rng.fork()), None);
            sum += taken.iter().map(|taken| taken.count as f64).product::<f64>();
        }
        sum / samples.max(1) as f64
    }

    /// Judges one image, then the crashes inside its recovery. The first `shared` choices are those of the previous image.
    fn image(
        &mut self,
        point: &Point<'_>,
        script: Vec<usize>,
        beyond: Beyond,
        shared: Option<usize>,
    ) -> Vec<Taken> {
        match point.outer {
            None => self.report.images += 1,
            Some(_) => self.report.nested_images += 1,
        }
        let scene = point.scene;
        let recalls = self.options.recall && self.options.only.is_none();
        if recalls
            && point.outer.is_some()
            && let Some(taken) = self.stage.recall(&script, &beyond, scene.expected)
        {
            self.report.nested_recalled += 1;
            return taken;
        }
        self.stage.begin(script, beyond, scene.expected);
        let verdict = quietly(|| judge(&self.stage, self.config, &scene.expect, scene.continuation));
        let is_same = !recalls || verdict.is_err() || self.stage.learn();
        let taken = self.stage.end();
        if !is_same {
            let message = "the subject is not deterministic: after the same reads it read something else";
            self.violation(scene.phase, scene.name, Some(point.crash(&taken)), message.to_owned());
        }
        match verdict {
            Err(message) => self.violation(scene.phase, scene.name, Some(point.crash(&taken)), message),
            Ok(judged) if point.outer.is_none() && self.options.nested => {
                self.inside_recovery(point, &taken, judged, shared);
            }
            Ok(_) => {}
        }
        taken
    }

    fn inside_recovery(&mut self, point: &Point<'_>, taken: &[Taken], judged: Judged, shared: Option<usize>) {
        Discovery::default().discover(&judged.recovery, &mut self.report.mutants);
        let events = self.seen_by_model(judged.recovery);
        if !events.iter().any(Recorded::is_store) {
            return;
        }
        let choices: Vec<usize> = taken.iter().map(|taken| taken.choice).collect();
        let outer = &Outer { event: point.event, choices: &choices };
        let scene = point.scene;
        let mut ground = Ground::new(&self.stage, point.open, taken);
        let mut model = Model::new(self.options.line_cap, self.options.seed);
        let mut stored = false;
        for (event, recorded) in events.iter().enumerate() {
            ground.reach(recorded.taken, recorded.len, &mut model);
            let here = recorded.is_fence() || (self.options.every_store && recorded.is_store());
            if here && std::mem::take(&mut stored) && shared.is_none_or(|shared| ground.composed > shared) {
                self.nested_point(scene, ground.open(&mut model), event, outer);
            }
            ground.apply(recorded, &mut model);
            stored |= recorded.is_store();
        }
        if let Some(seen) = &judged.seen
            && !model.is_settled()
            && shared.is_none_or(|shared| judged.taken > shared)
        {
            ground.reach(judged.taken, judged.len, &mut model);
            let scene = Scene::new(scene.phase, scene.name, Expect::exactly(seen), scene.continuation);
            self.nested_point(&scene, ground.open(&mut model), events.len(), outer);
        }
        ground.leave();
    }

    fn nested_point(&mut self, scene: &Scene<'_>, open: Open, event: usize, outer: &Outer<'_>) {
        let wanted = |only: &Crash| only.inside.as_ref().is_some_and(|(inside, _)| *inside == event);
        if self.is_over() || !self.options.only.as_ref().is_none_or(wanted) {
            return;
        }
        self.report.nested_points += 1;
        self.images(&Point { scene, open: &open, event, outer: Some(outer) });
    }
}

/// True if two images with the same first `shared` choices read the same lines up to and including the next choice.
fn same_lines(last: &[Taken], taken: &[Taken], shared: Option<usize>) -> bool {
    let Some(shared) = shared else { return true };
    let lines =
        |taken: &[Taken]| taken.get(..=shared).map(|taken| taken.iter().map(|t| (t.line, t.count)).collect());
    let (before, now): (Option<Vec<_>>, Option<Vec<_>>) = (lines(last), lines(taken));
    now.is_some() && before == now
}

/// Returns the script after `taken`: the last choice with a content left is advanced. `None` after the last image.
fn advance(taken: &[Taken]) -> Option<Vec<usize>> {
    let last = taken.iter().rposition(|taken| taken.choice + 1 < taken.count)?;
    let mut script: Vec<usize> = taken[..=last].iter().map(|taken| taken.choice).collect();
    script[last] += 1;
    Some(script)
}

/// The stage's memory during the replay of a recovery: the image, as far as recovery has read it.
struct Ground<'a> {
    stage: Arc<Stage>,
    image: &'a Open,
    taken: &'a [Taken],
    composed: usize,
    /// Open lines that recovery stored to before reading them. The model holds their contents.
    adopted: Vec<u64>,
    len: u64,
    undo: Undo,
}

impl<'a> Ground<'a> {
    fn new(stage: &Arc<Stage>, image: &'a Open, taken: &'a [Taken]) -> Self {
        Self {
            stage: stage.clone(),
            image,
            taken,
            composed: 0,
            adopted: Vec::new(),
            len: image.len,
            undo: Undo::new(),
        }
    }

    /// Advances the replay to the point where `taken` choices were made and `len` bytes were in use. Never goes backwards.
    fn reach(&mut self, taken: usize, len: u64, model: &mut Model) {
        let memory = self.stage.memory();
        self.len = self.len.max(len);
        memory.set_len(self.len);
        while self.composed < taken {
            let Taken { line, mask, words: read, .. } = self.taken[self.composed];
            if model.has(line) {
                model.narrow(line, mask, &read, memory, &mut self.undo);
            } else {
                self.undo.push((line, words(memory, line)));
                put(memory, line, &read);
            }
            self.composed += 1;
        }
    }

    /// Replays one event of recovery. If it stores to a line that recovery has not read, the line may have any of its contents below the
    /// store.
    fn apply(&mut self, recorded: &Recorded, model: &mut Model) {
        if let Event::Store { at, .. } = recorded.event {
            let line = at & !(LINE - 1);
            if let Ok(index) = self.image.lines.binary_search_by_key(&line, |open| open.0)
                && !model.has(line)
                && !self.adopted.contains(&line)
                && !self.has_read(line)
            {
                self.adopted.push(line);
                model.adopt(line, &self.image.lines[index].1.contents);
            }
        }
        model.apply(&recorded.event, self.stage.memory(), &mut self.undo);
    }

    fn has_read(&self, line: u64) -> bool {
        self.taken[..self.composed].iter().any(|taken| taken.line == line)
    }

    /// The state that a crash here leaves undetermined: the image's lines that recovery has neither read nor stored to, and the lines of
    /// recovery's own stores.
    fn open(&self, model: &mut Model) -> Open {
        let untouched = |line: u64| !self.has_read(line) && !self.adopted.contains(&line);
        let unread = self.image.lines.iter().filter(|(line, _)| untouched(*line)).cloned();
        let mut lines = model.open();
        lines.extend(unread);
        lines.sort_by_key(|(line, _)| *line);
        Open { lines, len: self.len }
    }

    fn leave(mut self) {
        let memory = self.stage.memory();
        memory.set_len(self.len);
        rewind(memory, &mut self.undo);
        memory.set_len(self.image.len);
    }
}
