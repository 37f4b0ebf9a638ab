//! Health of endpoints: states, and the events that change the states.

pub(crate) mod observer;
pub(crate) mod reachability;
pub(crate) mod responder;
pub(crate) mod settings;
pub(crate) mod state;
