//! What replicas that hear from each other lend each other of a limit.
//!
//! Each has its equal part ([`Replicas`](crate::Replicas)). One that needs more asks another, which lends some of what it
//! does not use, for a few seconds, and has so much less meanwhile. Nothing has to be agreed on by all, and no clock is
//! compared with another: who borrows counts from when it asked, who lends from when it said yes, which is later. So what
//! is borrowed is over before the lender has it back, however slow the answer is and whether it arrives or not, and the parts are never
//! more than the limit. Once the others are lost, the loans are over in seconds, and each has its equal part.

use std::time::Duration;

use tokio::time::Instant;

/// How long a loan lasts. 5 s: demand moves between replicas by connections that last longer; and who lent has its part
/// back before most clients have come again twice.
pub const LOAN: Duration = Duration::from_secs(5);

/// How much of the spare is lent at once: half, so that the others find something, too.
const LENT_OF_SPARE: u32 = 2;

/// What one replica has lent and borrowed of one limit: slots, or tokens in a second.
#[derive(Clone, Debug, Default)]
pub struct Loans {
    given: Vec<Loan>,
    taken: Vec<Loan>,
}

#[derive(Clone, Copy, Debug)]
struct Loan {
    amount: u32,
    until: Instant,
}

impl Loans {
    /// What this replica has now, of whose own part is `own`.
    ///
    /// If the own part shrank below what is lent, it is 1 as long as that lasts, or 0 if it is.
    pub fn part(&self, own: u32, now: Instant) -> u32 {
        own.saturating_sub(sum(&self.given, now)).max(own.min(1)).saturating_add(sum(&self.taken, now))
    }

    /// Another replica asks for so much: how much it is lent, from now on for [`LOAN`]; 0 for nothing. `used` is what this
    /// one uses. What it has borrowed it does not lend.
    pub fn lend(&mut self, own: u32, used: u32, wanted: u32, now: Instant) -> u32 {
        self.forget(now);
        let kept = own.saturating_sub(sum(&self.given, now));
        let spare = kept.saturating_sub(used.max(1));
        let amount = wanted.min(spare.div_ceil(LENT_OF_SPARE));
        if let (Some(until), true) = (now.checked_add(LOAN), amount > 0) {
            self.given.push(Loan { amount, until });
            return amount;
        }
        0
    }

    /// Another replica has lent so much; it was asked at this time, as this replica's clock had it. What comes after the loan
    /// is over counts nothing.
    pub fn borrow(&mut self, amount: u32, asked: Instant, now: Instant) {
        self.forget(now);
        if let Some(until) = asked.checked_add(LOAN).filter(|until| *until > now) {
            self.taken.push(Loan { amount, until });
        }
    }

    fn forget(&mut self, now: Instant) {
        self.given.retain(|loan| loan.until > now);
        self.taken.retain(|loan| loan.until > now);
    }
}

/// What is not over.
fn sum(loans: &[Loan], now: Instant) -> u32 {
    let lasting = loans.iter().filter(|loan| loan.until > now);
    lasting.fold(0, |sum: u32, loan| sum.saturating_add(loan.amount))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;
    use crate::share::Replicas;

    /// One asks another, which hears it so much later, and is answered so much later again, or never.
    #[derive(Clone, Debug)]
    struct Question {
        at: u64,
        asks: usize,
        asked: usize,
        wanted: u32,
        used: u32,
        /// Milliseconds; none for what is lost.
        there: u64,
        back: Option<u64>,
    }

    fn questions(replicas: usize) -> impl Strategy<Value = Vec<Question>> {
        let delay = 0_u64..8_000;
        let question =
            (0_u64..20_000, 0..replicas, 0..replicas, 1_u32..50, 0_u32..20, delay.clone(), proptest::option::of(delay));
        let question = question.prop_map(|(at, asks, asked, wanted, used, there, back)| Question {
            at,
            asks,
            asked,
            wanted,
            used,
            there,
            back,
        });
        proptest::collection::vec(question, 1..60)
    }

    enum Message<'a> {
        Heard(&'a Question),
        Answered(&'a Question, u32),
    }

    proptest! {
        #[test]
        fn whatever_is_late_or_lost_the_parts_are_no_more_than_the_limit(
            limit in 4_u32..200,
            questions in questions(4),
        ) {
            let start = Instant::now();
            let count = NonZeroU32::new(4).unwrap();
            let own: Vec<_> = (0..4).map(|rank| Replicas::ranked(count, rank).unwrap().part(limit)).collect();
            let mut loans = vec![Loans::default(); 4];
            let mut messages: Vec<(u64, Message<'_>)> =
                questions.iter().map(|question| (question.at + question.there, Message::Heard(question))).collect();
            let mut lent = 0;
            while let Some(next) = (0..messages.len()).min_by_key(|index| messages[*index].0) {
                let (at, message) = messages.swap_remove(next);
                let now = start + Duration::from_millis(at);
                match message {
                    Message::Heard(question) => {
                        let Question { asks, asked, wanted, used, .. } = *question;
                        if asks == asked {
                            continue;
                        }
                        let amount = loans[asked].lend(own[asked], used, wanted, now);
                        lent += amount;
                        if let (Some(back), true) = (question.back, amount > 0) {
                            messages.push((at + back, Message::Answered(question, amount)));
                        }
                    }
                    Message::Answered(question, amount) => {
                        loans[question.asks].borrow(amount, start + Duration::from_millis(question.at), now);
                    }
                }
                let parts = |now| loans.iter().zip(&own).map(move |(loans, own)| loans.part(*own, now));
                prop_assert!(parts(now).sum::<u32>() <= limit);
                prop_assert!(parts(now).all(|part| part >= 1));
                let later = now + LOAN;
                prop_assert!(parts(later).eq(own.iter().copied()), "nothing is lent for longer");
            }
            prop_assume!(lent > 0);
        }
    }

    #[test]
    fn what_is_not_used_is_lent_by_halves_and_what_is_borrowed_is_not() {
        let now = Instant::now();
        let (mut one, mut other) = (Loans::default(), Loans::default());
        assert_eq!(one.lend(100, 20, 1_000, now), 40);
        assert_eq!(one.lend(100, 20, 15, now), 15);
        assert_eq!(one.part(100, now), 45);
        other.borrow(55, now, now);
        assert_eq!(other.part(10, now), 65);
        assert_eq!(other.lend(10, 10, 5, now), 0, "its own are all used");
        other.borrow(1, now, now + LOAN);
        assert_eq!((one.part(100, now + LOAN), other.part(10, now + LOAN)), (100, 10));
        assert_eq!(one.lend(1, 0, 1, now + LOAN), 0, "the last one is kept");
    }
}
