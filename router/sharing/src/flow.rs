//! Who waits for whom, and who is refused, where clients share what there is: requests in flight, what lasts, bytes,
//! lines to members, turns of long answers.

pub mod fair_line;
pub mod fair_share;
pub mod held_body;
pub mod holder;
pub mod large_bodies;
pub mod long_answers;
pub mod long_running;
