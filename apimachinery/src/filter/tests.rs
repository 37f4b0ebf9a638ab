//! Tests of filters.
