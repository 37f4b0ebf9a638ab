//! Limits that clients share, and the queues of clients that wait: requests in flight, long-running requests, bytes,
//! questions to clusters, and turns of long answers.

pub mod fair_line;
pub mod fair_semaphore;
pub mod held_body;
pub mod holder;
pub mod large_bodies;
pub mod long_answers;
pub mod long_running;
