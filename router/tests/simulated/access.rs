//! Tests of users' rights, and of the identity that members receive.

pub(crate) mod impersonated;
pub(crate) mod known_clusters;
pub(crate) mod reviews;
pub(crate) mod rights;
pub(crate) mod rights_bounded;
pub(crate) mod rights_detected;
pub(crate) mod rights_forwarded;
pub(crate) mod rights_joining;
pub(crate) mod rights_lasting;
pub(crate) mod rights_numbers;
pub(crate) mod rights_property;
pub(crate) mod rights_reviewed;
pub(crate) mod rights_watched;
pub(crate) mod senders;
