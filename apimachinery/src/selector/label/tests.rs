//! Tests of label selectors.
