//! The crash explorer itself, on toys and random programs. One program, so that the engines are compiled once for all of these tests.

mod caps_and_seeds;
mod lazy_and_eager_agree;
mod line_contents;
mod mutant_kinds;
mod mutation;
mod random_programs;
mod region;
mod toys;
mod toys_are_judged;
