//! By what it is judged what users may do in a cluster.

use tokio::time::Instant;

/// By what it is decided what users may do in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decides {
    /// Its roles and bindings.
    Rules,
    /// What it says when it is asked.
    Reviews,
    /// What it says when it is asked, of what it answers itself: nothing of it is shown from memory.
    Live,
}

/// By what of what is known rights are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Basis {
    /// All that counts, also what a cluster said before it was out of reach: what somebody is shown from memory.
    #[default]
    Held,
    /// The same, and what is to be asked again counts as it was said last: what somebody has lost by that is lost.
    Last,
    /// What one cluster allows now, by what decides that there: nothing else is judged so. `None` where that is not
    /// known.
    Now(Option<Decides>),
    /// The same of a cluster whose roles and bindings decide, and may be others than are held: what it says to what it
    /// was asked since this moment.
    Asked(Instant),
}
