//! Tests of the reading of requests.
