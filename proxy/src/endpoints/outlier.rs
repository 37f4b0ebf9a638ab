//! Whether one of several endpoints is an outlier: it answers, and its answers are worth nothing.
//!
//! Such an endpoint has the fewest requests in flight, and would be given all of them. But what clients are answered
//! does not show that: one broken resource, one user's webhook or one aggregated server makes a sound kube-apiserver
//! answer 500 as well, as often as a client asks. So an error that a client is given only raises a suspicion, and what
//! decides is the answer to questions of our own (`suspicion.rs`). However many errors clients are given, an endpoint
//! that answers these well is not left out.
//!
//! ```text
//!        own question fails              so many own questions answered
//! well ──────────────────────▶ ejected ───────────────────────────────▶ well, and used little by little (`slow_start.rs`)
//! ```

use http::StatusCode;
use tokio::time::Duration;

/// From one question of our own to the next, however many errors clients are given, and while it is ejected. 1 s: a
/// client that provokes errors costs the endpoint two small requests a second.
pub(crate) const QUESTION_INTERVAL: Duration = Duration::from_secs(1);

/// So many questions in a row are to be answered well before it is used again. 2: one server of several behind one
/// address may be the sound one.
const ANSWERED_WELL: u32 = 2;

/// What is known of one endpoint's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outlier {
    /// Nothing is known against them.
    #[default]
    Well,
    /// It failed a question of ours; so many since then it answered well.
    Ejected { answered_well: u32 },
}

/// What has changed by the answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Ejected,
    Returned,
}

impl Outlier {
    /// Our own questions were answered, well or not.
    pub(crate) fn judged(&mut self, is_well: bool) -> Change {
        match (*self, is_well) {
            (Self::Ejected { .. }, false) => {
                *self = Self::Ejected { answered_well: 0 };
                Change::None
            }
            (Self::Well, false) => {
                *self = Self::Ejected { answered_well: 0 };
                Change::Ejected
            }
            (Self::Ejected { answered_well }, true) if answered_well + 1 < ANSWERED_WELL => {
                *self = Self::Ejected { answered_well: answered_well + 1 };
                Change::None
            }
            (Self::Ejected { .. }, true) => {
                *self = Self::Well;
                Change::Returned
            }
            (Self::Well, true) => Change::None,
        }
    }

    /// Whether it is asked only where nobody else is left.
    pub(crate) fn is_ejected(self) -> bool {
        matches!(self, Self::Ejected { .. })
    }
}

/// Whether an answer of this status to a client raises a suspicion. 501 and 505 are about the request. 429 says that
/// the endpoint has enough to do, which is no fault.
pub(crate) fn is_suspicious(status: StatusCode) -> bool {
    status.is_server_error() && !matches!(status, StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_questions_decide() {
        let well = Outlier::Well;
        let ejected = |answered_well| Outlier::Ejected { answered_well };
        for (before, is_well, after, change) in [
            (well, true, well, Change::None),
            (well, false, ejected(0), Change::Ejected),
            (ejected(0), true, ejected(1), Change::None),
            (ejected(1), false, ejected(0), Change::None),
            (ejected(1), true, well, Change::Returned),
        ] {
            let mut state = before;
            assert_eq!((state.judged(is_well), state), (change, after), "{before:?} {is_well}");
        }
        assert!(ejected(1).is_ejected() && !well.is_ejected());
    }

    #[test]
    fn only_errors_of_the_server_are_suspicious() {
        for (status, expected) in [
            (200, false),
            (403, false),
            (429, false),
            (500, true),
            (501, false),
            (502, true),
            (503, true),
            (505, false),
        ] {
            assert_eq!(is_suspicious(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }
}
