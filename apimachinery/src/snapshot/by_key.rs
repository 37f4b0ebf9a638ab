//! Wraps an object for ordered sets, which compare objects by key.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

use crate::Object;

/// An object whose order and equality are those of its key.
#[derive(Clone)]
pub(super) struct ByKey(pub(super) Arc<Object>);

impl Borrow<str> for ByKey {
    fn borrow(&self) -> &str {
        self.0.key().as_str()
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for ByKey {}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}
