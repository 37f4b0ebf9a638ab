//! Tests of options.
