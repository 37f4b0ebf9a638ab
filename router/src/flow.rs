//! Who waits for whom, and who is refused, where clients share what there is: requests in flight, what lasts, bytes,
//! lines to members, turns of long answers.

pub(crate) mod fair_line;
pub(crate) mod fair_share;
pub(crate) mod held_body;
pub(crate) mod holder;
pub(crate) mod large_bodies;
pub(crate) mod long_answers;
pub(crate) mod long_running;
