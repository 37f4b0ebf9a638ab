//! Requests that go on to members: to the owner of an object, to the target of a new one, to all.

pub mod answer;
pub mod body;
pub mod create;
pub mod fan_out;
pub mod forward;
pub mod locate;
pub mod owner;
pub mod relay;
pub mod self_review;
