//! The health of endpoints: states, and the inputs that change them.

pub(crate) mod observer;
pub(crate) mod reachability;
pub(crate) mod settings;
pub(crate) mod speaker;
pub(crate) mod state;
