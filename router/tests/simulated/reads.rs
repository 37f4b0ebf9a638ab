//! Tests of lists, watches and gets, and of their versions.

pub(crate) mod freshness;
pub(crate) mod hidden;
pub(crate) mod integers;
pub(crate) mod lagging;
pub(crate) mod large;
pub(crate) mod lists;
pub(crate) mod live;
pub(crate) mod namespaces;
pub(crate) mod pages;
pub(crate) mod registries;
pub(crate) mod selection;
pub(crate) mod shared_revisions;
pub(crate) mod slow_lines;
pub(crate) mod streams;
pub(crate) mod uncached;
pub(crate) mod watches;
pub(crate) mod worst;
