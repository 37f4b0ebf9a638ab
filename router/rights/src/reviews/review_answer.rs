//! Last answer of a cluster to an access review, and the time for which the answer is valid. This module does no I/O.

use std::time::Duration;

use tokio::time::Instant;

/// Time for which an approval is valid. 60 s: after a webhook removes a right, Tributary denies it within this time.
pub(crate) const APPROVAL_TTL: Duration = Duration::from_secs(60);

/// Time for which a refusal is valid. 10 s: a user who gets a new right tries it at once.
const REFUSAL_TTL: Duration = Duration::from_secs(10);

/// Minimum delay between a failed review and the next review of the same content.
const REVIEW_RETRY_AFTER: Duration = Duration::from_secs(5);

/// Factor: the delay before the next review is longer by this multiple of the duration of a failed review. The reviews
/// of one decision may follow each other, and the first result must still be valid when the last review fails. With
/// five, this is true for six sequential reviews that take 5 s each, within `REVIEW_TIMEOUT`.
const REVIEW_RETRY_FACTOR: u32 = 5;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReviewAnswer {
    /// The cluster's answer, the time of the review, and the generation of the user's rights.
    pub(super) answer: Option<(bool, Instant, u64)>,
    /// Time of the next review, if a review has failed since the last answer.
    pub(super) silent_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KnownAnswer {
    /// The cluster's answer, and the time until which the answer is valid.
    Answered(bool, Instant),
    /// The cluster does not answer reviews. The value is the time of the next review.
    Silent(Instant),
    /// No answer is valid, so a review has to be sent.
    Open,
}

impl ReviewAnswer {
    /// Drops the answer if the review was sent before `moment`.
    pub(super) fn sent_since(self, moment: Instant) -> Self {
        Self { answer: self.answer.filter(|(_, sent_at, _)| *sent_at >= moment), ..self }
    }

    /// Returns whether the answer is valid at `now`. `generation` is a number that changes with the roles and bindings
    /// of the user. An answer from a different generation is not valid, because each change may change any answer.
    /// `hold` is the time for which the last answer of a cluster that does not answer stays valid after its expiry.
    pub(super) fn known_answer(self, now: Instant, generation: u64, hold: Duration) -> KnownAnswer {
        let silent_until = self.silent_until.filter(|until| now < *until);
        match (self.answer.filter(|(.., own)| *own == generation), silent_until) {
            (Some((allowed, sent_at, _)), _) if now < sent_at + answer_ttl(allowed) => {
                KnownAnswer::Answered(allowed, sent_at + answer_ttl(allowed))
            }
            (Some((allowed, sent_at, _)), Some(until)) if now < sent_at + hold => {
                KnownAnswer::Answered(allowed, until.min(sent_at + hold))
            }
            (_, Some(until)) => KnownAnswer::Silent(until),
            (_, None) => KnownAnswer::Open,
        }
    }

    /// Like `known_answer`, but while a new review is necessary, returns the last answer.
    pub(super) fn known_last(self, now: Instant, generation: u64, hold: Duration) -> KnownAnswer {
        match (self.known_answer(now, generation, hold), self.answer) {
            (KnownAnswer::Open, Some((allowed, sent_at, _))) => {
                KnownAnswer::Answered(allowed, sent_at + answer_ttl(allowed))
            }
            (known, _) => known,
        }
    }
}

/// Returns the time of the next review, after a review that was sent at `sent_at` and failed at `now`.
pub(super) fn next_review_at(sent_at: Instant, now: Instant) -> Instant {
    now + REVIEW_RETRY_AFTER + (now - sent_at) * REVIEW_RETRY_FACTOR
}

fn answer_ttl(allowed: bool) -> Duration {
    if allowed { APPROVAL_TTL } else { REFUSAL_TTL }
}

#[cfg(test)]
mod tests {
    use super::super::REVIEW_TIMEOUT;
    use super::*;
    use crate::mirror_state::BEHIND_MAX;

    #[test]
    fn expired_review_answer_is_used_only_while_its_cluster_is_silent() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        // If the cluster refuses the connection, the review fails at once.
        let silent = |failed: u64| Some(next_review_at(at(failed), at(failed)));
        let answer_of = |allowed, failed: Option<u64>| {
            let silent_until = failed.and_then(silent);
            ReviewAnswer { answer: Some((allowed, at(0), 7)), silent_until }
        };
        let hold = Duration::from_secs(300);
        for (answer, now, generation, expected) in [
            (ReviewAnswer::default(), 0, 7, KnownAnswer::Open),
            (answer_of(true, None), 59, 7, KnownAnswer::Answered(true, at(60))),
            (answer_of(true, None), 60, 7, KnownAnswer::Open),
            (answer_of(false, None), 9, 7, KnownAnswer::Answered(false, at(10))),
            (answer_of(false, None), 10, 7, KnownAnswer::Open),
            // A generation changes with each change of the user's roles and bindings.
            (answer_of(true, None), 1, 8, KnownAnswer::Open),
            (answer_of(true, Some(1)), 2, 8, KnownAnswer::Silent(at(6))),
            // The cluster does not answer the later reviews.
            (answer_of(true, Some(61)), 62, 7, KnownAnswer::Answered(true, at(66))),
            (answer_of(true, Some(61)), 66, 7, KnownAnswer::Open),
            (answer_of(true, Some(298)), 299, 7, KnownAnswer::Answered(true, at(300))),
            (answer_of(true, Some(299)), 300, 7, KnownAnswer::Silent(at(304))),
            (ReviewAnswer { silent_until: silent(3), answer: None }, 4, 7, KnownAnswer::Silent(at(8))),
            (ReviewAnswer { silent_until: silent(3), answer: None }, 8, 7, KnownAnswer::Open),
        ] {
            assert_eq!(answer.known_answer(at(now), generation, hold), expected, "{answer:?} at {now}");
        }
        // Without a `hold` time, an expired answer is not valid while the cluster does not answer.
        let without_hold = answer_of(true, Some(61)).known_answer(at(62), 7, Duration::ZERO);
        assert_eq!(without_hold, KnownAnswer::Silent(at(66)));
        assert_eq!(
            answer_of(true, Some(1)).known_answer(at(59), 7, Duration::ZERO),
            KnownAnswer::Answered(true, at(60))
        );
        // The last answer stays valid although a new review is necessary.
        let last = |answer: ReviewAnswer, seconds, generation| answer.known_last(at(seconds), generation, hold);
        assert_eq!(last(answer_of(false, None), 500, 7), KnownAnswer::Answered(false, at(10)));
        assert_eq!(last(answer_of(true, None), 1, 8), KnownAnswer::Answered(true, at(60)));
        assert_eq!(last(answer_of(true, Some(1)), 2, 8), KnownAnswer::Silent(at(6)));
        assert_eq!(last(ReviewAnswer::default(), 0, 7), KnownAnswer::Open);
        // Only answers to reviews that were sent since `moment` are valid.
        let sent_since = |moment| answer_of(true, None).sent_since(at(moment)).known_answer(at(1), 7, Duration::ZERO);
        assert_eq!([sent_since(0), sent_since(1)], [KnownAnswer::Answered(true, at(60)), KnownAnswer::Open]);
    }

    /// Each review is sent after the previous one has failed.
    #[test]
    fn last_review_answers_are_still_used_after_six_slow_failures() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let last = at(REVIEW_TIMEOUT.as_secs());
        for number in 0..REVIEW_TIMEOUT.as_secs() / 5 {
            let silent_until = Some(next_review_at(at(5 * number), at(5 * number + 5)));
            let answer =
                ReviewAnswer { answer: Some((true, begin.checked_sub(APPROVAL_TTL).unwrap(), 7)), silent_until };
            let known = answer.known_answer(last, 7, BEHIND_MAX);
            assert!(matches!(known, KnownAnswer::Answered(true, until) if until > last), "{number}: {known:?}");
        }
    }
}
