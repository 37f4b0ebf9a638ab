//! What replicas that hear from each other lend each other of a limit.
//!
//! Each has its equal part ([`Replicas`](crate::Replicas)). One that needs more asks the others, which lend some of
//! what they do not use, for a few seconds, and have so much less meanwhile. A loan that is still needed is renewed
//! before it is over: of what one replica has lent another the larger counts, not the sum. Nothing has to be agreed on
//! by all, and no clock is compared with another: who borrows counts from when it asked, who lends from when it said
//! yes, which is later. So whatever is borrowed is over before the lender has it back, however slow the answer is and
//! whether it arrives or not, and the parts are never more than the limit. Once the others are lost, the loans are over
//! in seconds, and each has its equal part.

use std::time::Duration;

use tokio::time::Instant;

/// How long a loan lasts. 5 s: demand moves between replicas by connections that last longer; and who lent has its part
/// back before most clients have come again twice.
pub const LOAN: Duration = Duration::from_secs(5);

/// How much of the spare is lent at once: half, so that the others find something, too.
const LENT_OF_SPARE: u32 = 2;

/// How many loans to one other are told apart: who asks once in a second has six that are not over.
const LOANS_OF_ONE: usize = 8;

/// A replica, by a number that it has chosen at random when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

/// What one replica has lent and borrowed of one limit: slots, or tokens in a second.
#[derive(Clone, Debug, Default)]
pub struct Loans {
    given: Vec<Loan>,
    taken: Vec<Loan>,
}

#[derive(Clone, Copy, Debug)]
struct Loan {
    /// To whom, or from whom.
    other: ReplicaId,
    amount: u32,
    until: Instant,
}

impl Loans {
    /// What this replica has at this time, of whose own part is `own`.
    ///
    /// If the own part shrank below what is lent, it is 1 as long as that lasts, or 0 if it is.
    pub fn part(&self, own: u32, at: Instant) -> u32 {
        own.saturating_sub(sum(&self.given, at)).max(own.min(1)).saturating_add(sum(&self.taken, at))
    }

    /// Another replica asks for so much, what it has been lent before included: how much it is lent, from now on for
    /// [`LOAN`]; 0 for nothing new. `used` is what this one needs of its own part. What it has borrowed it does not
    /// lend.
    pub fn lend(&mut self, own: u32, used: u32, (other, wanted): (ReplicaId, u32), now: Instant) -> u32 {
        self.forget(now);
        let has = largest(&self.given, other, now);
        let available = own.saturating_sub(sum(&self.given, now) - has).saturating_sub(used.max(1));
        let amount = wanted.min(match available.checked_sub(has) {
            Some(spare) => has + spare.div_ceil(LENT_OF_SPARE),
            // This one needs of its part what it has lent, and has it back when that is over.
            None => available,
        });
        if let (Some(until), true) = (now.checked_add(LOAN), amount > 0) {
            self.give(Loan { other, amount, until });
            return amount;
        }
        0
    }

    /// Another replica has lent so much; it was asked at this time, as this replica's clock had it. What comes after
    /// the loan is over counts nothing.
    pub fn borrow(&mut self, (other, amount): (ReplicaId, u32), asked: Instant, now: Instant) {
        self.forget(now);
        if let Some(until) = asked.checked_add(LOAN).filter(|until| *until > now) {
            add(&mut self.taken, Loan { other, amount, until });
        }
    }

    /// Gives up what was borrowed: it was a part of a larger limit, and would be more than its share of a smaller one.
    /// What is lent stays so until it is over, whoever still uses it.
    pub fn give_up_borrowed(&mut self) {
        self.taken.clear();
    }

    /// How much to ask one other for, where so much is wanted of all together: what the others do not lend; or, where
    /// they lend as much as is wanted, its share of that. `other` is `None` for one that has lent nothing yet.
    pub fn asked_of(&self, other: Option<ReplicaId>, wanted: u32, now: Instant) -> u32 {
        let has = other.map_or(0, |other| largest(&self.taken, other, now));
        let all = sum(&self.taken, now);
        match wanted.checked_sub(all) {
            Some(more) => has + more,
            // All are more than what is wanted, so that this is not more than it either.
            None => u32::try_from((u64::from(wanted) * u64::from(has)).div_ceil(u64::from(all))).unwrap_or(wanted),
        }
    }

    /// When the next loan is over after this time; `None` where there is none.
    pub fn next_end(&self, after: Instant) -> Option<Instant> {
        self.given.iter().chain(&self.taken).map(|loan| loan.until).filter(|until| *until > after).min()
    }

    /// Whoever asks much more often than once in a second, for less each time, has the largest that it was lent kept
    /// for it until the last is over.
    fn give(&mut self, loan: Loan) {
        add(&mut self.given, loan);
        let of_it = self.given.iter().filter(|given| given.other == loan.other);
        if of_it.clone().count() > LOANS_OF_ONE {
            let amount = of_it.map(|given| given.amount).max().unwrap_or(loan.amount);
            self.given.retain(|given| given.other != loan.other);
            self.given.push(Loan { amount, ..loan });
        }
    }

    fn forget(&mut self, now: Instant) {
        self.given.retain(|loan| loan.until > now);
        self.taken.retain(|loan| loan.until > now);
    }
}

/// Adds a loan. It takes the place of those of the same other that are neither larger nor last longer: they would
/// never count again.
fn add(loans: &mut Vec<Loan>, new: Loan) {
    loans.retain(|loan| loan.other != new.other || loan.amount > new.amount || loan.until > new.until);
    loans.push(new);
}

/// What is not over of one other's.
fn largest(loans: &[Loan], other: ReplicaId, at: Instant) -> u32 {
    let lasting = loans.iter().filter(|loan| loan.other == other && loan.until > at);
    lasting.map(|loan| loan.amount).max().unwrap_or(0)
}

/// What is not over of all others'. There are a few of each: one second brings one.
fn sum(loans: &[Loan], at: Instant) -> u32 {
    let is_first = |(number, loan): &(usize, &Loan)| loans[..*number].iter().all(|before| before.other != loan.other);
    let others = loans.iter().enumerate().filter(is_first);
    others.fold(0, |sum: u32, (_, loan)| sum.saturating_add(largest(loans, loan.other, at)))
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

    fn id(replica: usize) -> ReplicaId {
        ReplicaId(replica as u64)
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
                        let amount = loans[asked].lend(own[asked], used, (id(asks), wanted), now);
                        lent += amount;
                        if let (Some(back), true) = (question.back, amount > 0) {
                            messages.push((at + back, Message::Answered(question, amount)));
                        }
                    }
                    Message::Answered(question, amount) => {
                        let asked = start + Duration::from_millis(question.at);
                        loans[question.asks].borrow((id(question.asked), amount), asked, now);
                    }
                }
                // Now, and at all times until the next message.
                let parts = |at| loans.iter().zip(&own).map(move |(loans, own)| loans.part(*own, at));
                let ends = loans.iter().flat_map(|own| std::iter::successors(own.next_end(now), |end| own.next_end(*end)));
                for at in ends.chain([now]) {
                    prop_assert!(parts(at).sum::<u32>() <= limit);
                    prop_assert!(parts(at).all(|part| part >= 1));
                }
                let later = now + LOAN;
                prop_assert!(parts(later).eq(own.iter().copied()), "nothing is lent for longer");
            }
            prop_assume!(lent > 0);
        }
    }

    const OTHER: ReplicaId = ReplicaId(1);
    const THIRD: ReplicaId = ReplicaId(2);

    #[test]
    fn what_is_not_used_is_lent_by_halves_and_what_is_borrowed_is_not() {
        let now = Instant::now();
        let (mut one, mut other) = (Loans::default(), Loans::default());
        assert_eq!(one.lend(100, 20, (OTHER, 1_000), now), 40);
        assert_eq!(one.lend(100, 20, (THIRD, 15), now), 15);
        assert_eq!(one.part(100, now), 45);
        other.borrow((ReplicaId(0), 55), now, now);
        assert_eq!(other.part(10, now), 65);
        assert_eq!(other.lend(10, 10, (THIRD, 5), now), 0, "its own are all used");
        other.borrow((THIRD, 1), now, now + LOAN);
        assert_eq!((one.part(100, now + LOAN), other.part(10, now + LOAN)), (100, 10));
        assert_eq!(one.lend(1, 0, (OTHER, 1), now + LOAN), 0, "the last one is kept");
    }

    #[test]
    fn others_are_asked_for_what_is_missing_and_for_less_where_it_is_too_much() {
        let now = Instant::now();
        let mut own = Loans::default();
        assert_eq!([None, Some(OTHER)].map(|other| own.asked_of(other, 30, now)), [30, 30]);
        own.borrow((OTHER, 20), now, now);
        assert_eq!([None, Some(OTHER), Some(THIRD)].map(|other| own.asked_of(other, 30, now)), [10, 30, 10]);
        own.borrow((THIRD, 40), now, now);
        assert_eq!([None, Some(OTHER), Some(THIRD)].map(|other| own.asked_of(other, 30, now)), [0, 10, 20]);
    }

    #[test]
    fn however_often_one_other_asks_a_few_loans_are_kept_for_it() {
        let now = Instant::now();
        let mut own = Loans::default();
        let lent = |own: &mut Loans, wanted| own.lend(1_000, 0, (OTHER, wanted), now);
        assert!((0..4_096).all(|_| lent(&mut own, 1) == 1));
        assert_eq!((own.given.len(), own.part(1_000, now)), (1, 999));
        // For less each time: what it was lent before is not over.
        assert!((1..=400).rev().all(|wanted| lent(&mut own, wanted) == wanted));
        assert!(own.given.len() <= LOANS_OF_ONE, "{:?}", own.given);
        assert_eq!((own.part(1_000, now), own.part(1_000, now + LOAN)), (600, 1_000));
        for _ in 0..4_096 {
            own.borrow((THIRD, 1), now, now);
        }
        assert_eq!((own.taken.len(), own.part(1_000, now)), (1, 601));
    }

    #[test]
    fn a_loan_is_renewed_as_long_as_the_lender_does_not_need_it() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut one = Loans::default();
        // Each second more of it, until all is lent that is not used.
        let lent = (0..12_u32).map(|at| one.lend(100, 20, (OTHER, 1_000), start + second * at)).collect::<Vec<_>>();
        assert_eq!(lent[..4], [40, 60, 70, 75]);
        assert_eq!(lent[7..], [80; 5]);
        let last = start + second * 11;
        // Of loans of as much to one other the last one alone is kept.
        assert_eq!((one.part(100, last), one.next_end(last)), (20, Some(last + LOAN)));
        // Then it is needed: no more is lent, and what was comes back.
        assert_eq!(one.lend(100, 100, (OTHER, 1_000), last), 0);
        assert_eq!((one.part(100, last), one.part(100, last + LOAN)), (20, 100));
        // Less is needed by who borrowed.
        let mut one = Loans::default();
        one.lend(100, 20, (OTHER, 30), start);
        assert_eq!(one.lend(100, 20, (OTHER, 10), start + second), 10);
        assert_eq!((one.part(100, start + LOAN / 2), one.part(100, start + LOAN)), (70, 90));
    }
}
