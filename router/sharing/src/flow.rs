//! Limits that clients share, and queues of waiting requests: requests in flight, long-running requests, bytes, lookups
//! in clusters, and long answers.

pub mod fair_line;
pub mod fair_semaphore;
pub mod held_body;
pub mod holder;
pub mod large_bodies;
pub mod long_answers;
pub mod long_running;
