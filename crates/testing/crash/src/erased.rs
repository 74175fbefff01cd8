//! A workload without the type of its subject (type erasure). So the explorer is compiled once, not once for every tree.
//!
//! [`Config`] has those functions of [`Subject`] that take neither an operation nor a subject that is already open.

use std::any::Any;

use pmem::Observed;

use crate::subject::{Contents, Step, Subject, Workload};

/// An operation of any subject.
pub type AnyOp = Box<dyn Operation>;
/// Any subject, created or recovered.
pub type AnySubject = Box<dyn Live>;

/// The explorer's interface to an operation.
pub trait Operation: Any {
    /// As [`Subject::is_divisible`].
    fn is_divisible(&self) -> bool;
    /// As [`Subject::apply_model`].
    fn apply_model(&self, model: &mut Contents);
    /// As [`Subject::continuation`].
    fn continuation(&self) -> Vec<AnyOp>;
    /// The operation as text.
    fn name(&self) -> String;
}

/// The explorer's interface to a configuration.
pub trait Config {
    /// As [`Subject::size`].
    fn size(&self) -> (u64, u64);
    /// As [`Subject::create`].
    ///
    /// # Errors
    /// Those of the subject.
    fn create(&self, medium: Observed) -> Result<AnySubject, String>;
    /// As [`Subject::recover`].
    ///
    /// # Errors
    /// Those of the subject.
    fn recover(&self, medium: Observed) -> Result<AnySubject, String>;
    /// As [`Subject::idempotence_exempt`].
    fn idempotence_exempt(&self, at: u64) -> bool;
    /// The configuration as text.
    fn name(&self) -> String;
}

/// The explorer's interface to a subject.
pub trait Live {
    /// As [`Subject::apply`].
    ///
    /// # Errors
    /// Those of the subject.
    ///
    /// # Panics
    /// If the operation belongs to another subject.
    fn apply(&mut self, op: &dyn Operation) -> Result<(), String>;
    /// As [`Subject::verify`].
    ///
    /// # Errors
    /// Those of the subject.
    fn verify(&self) -> Result<Contents, String>;
    /// As [`Subject::close`].
    ///
    /// # Errors
    /// Those of the subject.
    fn close(self: Box<Self>) -> Result<(), String>;
}

/// A [`Workload`] of any subject.
pub struct AnyWorkload {
    /// The configuration for the creation and recovery of the subject.
    pub config: Box<dyn Config>,
    /// Operations that run first, without exploration.
    pub prepare: Vec<AnyOp>,
    /// Steps to explore.
    pub steps: Vec<Step<AnyOp>>,
}

impl AnyWorkload {
    /// Converts a workload.
    pub fn of<S: Subject>(workload: &Workload<S>) -> Self {
        let step = |step: &Step<S::Op>| match step {
            Step::Run(op) => Step::Run(any_op::<S>(op.clone())),
            Step::Cut(op) => Step::Cut(any_op::<S>(op.clone())),
        };
        Self {
            config: Box::new(ConfigOf::<S>(workload.config.clone())),
            prepare: workload.prepare.iter().cloned().map(any_op::<S>).collect(),
            steps: workload.steps.iter().map(step).collect(),
        }
    }
}

struct OpOf<S: Subject>(S::Op);

fn any_op<S: Subject>(op: S::Op) -> AnyOp {
    Box::new(OpOf::<S>(op))
}

impl<S: Subject> Operation for OpOf<S> {
    fn is_divisible(&self) -> bool {
        S::is_divisible(&self.0)
    }

    fn apply_model(&self, model: &mut Contents) {
        S::apply_model(&self.0, model);
    }

    fn continuation(&self) -> Vec<AnyOp> {
        S::continuation(&self.0).into_iter().map(any_op::<S>).collect()
    }

    fn name(&self) -> String {
        format!("{:?}", self.0)
    }
}

struct ConfigOf<S: Subject>(S::Config);

impl<S: Subject> Config for ConfigOf<S> {
    fn size(&self) -> (u64, u64) {
        S::size(&self.0)
    }

    fn create(&self, medium: Observed) -> Result<AnySubject, String> {
        Ok(Box::new(S::create(medium, &self.0)?))
    }

    fn recover(&self, medium: Observed) -> Result<AnySubject, String> {
        Ok(Box::new(S::recover(medium, &self.0)?))
    }

    fn idempotence_exempt(&self, at: u64) -> bool {
        S::idempotence_exempt(at)
    }

    fn name(&self) -> String {
        format!("{:?}", self.0)
    }
}

impl<S: Subject> Live for S {
    fn apply(&mut self, op: &dyn Operation) -> Result<(), String> {
        let op: &dyn Any = op;
        let OpOf::<S>(op) = op.downcast_ref().expect("a workload has operations of one subject");
        S::apply(self, op)
    }

    fn verify(&self) -> Result<Contents, String> {
        S::verify(self)
    }

    fn close(self: Box<Self>) -> Result<(), String> {
        S::close(*self)
    }
}
