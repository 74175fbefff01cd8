//! Persistent B+-Trees over durable memory: one skeleton, layouts and disciplines.
