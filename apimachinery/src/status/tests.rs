//! Tests of Status.
