//! Limits that clients share, and queues of waiting requests: requests in flight, long-running requests, bytes, lookups
//! in clusters, and long answers.

pub mod buffered_body;
pub mod fair_queue;
pub mod fair_semaphore;
pub mod large_bodies;
pub mod long_answers;
pub mod long_running;
pub mod share_key;
