//! Tests of policies, flow control, and limits of memory and connections.

pub(crate) mod bounds;
pub(crate) mod fairness;
pub(crate) mod governed;
pub(crate) mod held;
pub(crate) mod policies;
pub(crate) mod unread;
