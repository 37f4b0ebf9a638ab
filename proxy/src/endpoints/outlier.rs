//! Whether one of several endpoints is an outlier: it answers, and its answers are worth nothing.
//!
//! Such an endpoint has the fewest requests in flight, and would be given all of them. But what clients are answered
//! does not show that: one broken resource, one user's webhook or one aggregated server makes a sound kube-apiserver
//! answer 500 as well, as often as a client asks. So an error that a client is given only raises a suspicion, and what
//! decides is the answer to questions of our own (`suspicion.rs`). However many errors clients are given, an endpoint
//! that answers these well is not left out.
//!
//! ```text
//!        own question fails              so many own questions answered        the time of its return is over
//! well ──────────────────────▶ ejected ───────────────────────────────▶ returning ──────────────────────▶ well
//!                                 ▲            own question fails           │
//!                                 └─────────────────────────────────────────┘
//! ```

use http::StatusCode;
use tokio::time::{Duration, Instant};

/// From one question of our own to the next, however many errors clients are given, and while it is ejected. 1 s: a
/// client that provokes errors costs the endpoint two small requests a second.
pub(crate) const QUESTION_INTERVAL: Duration = Duration::from_secs(1);

/// So many questions in a row are to be answered well before it is used again. 2: one server of several behind one
/// address may be the sound one.
const ANSWERED_WELL: u32 = 2;

/// How long one that comes back is given less than the others. 10 s: a kube-apiserver that has just started fills its
/// watch caches in that time.
const RETURN: Duration = Duration::from_secs(10);

/// In how many steps its share grows meanwhile: from a tenth of its turns to all of them.
const STEPS: u32 = 10;

/// So many turns in a row are let pass or taken. 7: more than a cluster has endpoints, and soon over.
const TURNS_IN_A_ROW: u128 = 7;

/// What is known of one endpoint's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outlier {
    /// Nothing is known against them.
    #[default]
    Well,
    /// It failed a question of ours; so many since then it answered well.
    Ejected { answered_well: u32 },
    /// It is used again since then.
    Returning { since: Instant },
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
    pub(crate) fn judged(&mut self, is_well: bool, now: Instant) -> Change {
        match (*self, is_well) {
            (Self::Ejected { .. }, false) => {
                *self = Self::Ejected { answered_well: 0 };
                Change::None
            }
            (_, false) => {
                *self = Self::Ejected { answered_well: 0 };
                Change::Ejected
            }
            (Self::Ejected { answered_well }, true) if answered_well + 1 < ANSWERED_WELL => {
                *self = Self::Ejected { answered_well: answered_well + 1 };
                Change::None
            }
            (Self::Ejected { .. }, true) => {
                *self = Self::Returning { since: now };
                Change::Returned
            }
            (Self::Well | Self::Returning { .. }, true) => Change::None,
        }
    }

    /// Whether it is asked only where nobody else is left.
    pub(crate) fn is_ejected(self) -> bool {
        matches!(self, Self::Ejected { .. })
    }

    /// Whether this turn is one of those that it lets pass because it has just come back.
    pub(crate) fn lets_pass(self, turn: usize, now: Instant) -> bool {
        let Self::Returning { since } = self else { return false };
        let passed = now.saturating_duration_since(since);
        if passed >= RETURN {
            return false;
        }
        let share = 1 + (passed.as_millis() * u128::from(STEPS) / RETURN.as_millis());
        // Which endpoint begins goes by the turn as well, so several turns in a row are let pass.
        (turn as u128 / TURNS_IN_A_ROW) % u128::from(STEPS) >= share
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

    #[tokio::test(start_paused = true)]
    async fn own_questions_decide() {
        let now = Instant::now();
        let well = Outlier::Well;
        let ejected = |answered_well| Outlier::Ejected { answered_well };
        let returning = Outlier::Returning { since: now };
        for (before, is_well, after, change) in [
            (well, true, well, Change::None),
            (well, false, ejected(0), Change::Ejected),
            (ejected(0), true, ejected(1), Change::None),
            (ejected(1), false, ejected(0), Change::None),
            (ejected(1), true, returning, Change::Returned),
            (returning, true, returning, Change::None),
            (returning, false, ejected(0), Change::Ejected),
        ] {
            let mut state = before;
            assert_eq!((state.judged(is_well, now), state), (change, after), "{before:?} {is_well}");
        }
        assert!(ejected(1).is_ejected() && !returning.is_ejected() && !well.is_ejected());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_comes_back_gets_more_and_more() {
        let since = Instant::now();
        let taken = |state: Outlier, seconds| {
            (0..700).filter(|turn| !state.lets_pass(*turn, since + Duration::from_secs(seconds))).count()
        };
        let returning = Outlier::Returning { since };
        for (seconds, turns) in [(0, 70), (1, 140), (5, 420), (9, 700), (10, 700), (1000, 700)] {
            assert_eq!(taken(returning, seconds), turns, "after {seconds} s");
        }
        assert_eq!(taken(Outlier::Well, 0), 700);
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
