//! Tests of the crash explorer itself, on toys and random programs. All of them are one test program, so that their dependencies are linked
//! once.

mod caps_and_seeds;
mod lazy_and_eager_agree;
mod line_contents;
mod mutant_kinds;
mod mutation;
mod random_programs;
mod region;
mod toys;
mod toys_are_judged;
