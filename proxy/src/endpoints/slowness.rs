//! Whether an endpoint is slow by its own fault: questions of our own, which are small and always the same, take much
//! longer there than elsewhere. How long clients' requests take says nothing: a webhook, an aggregated server or one
//! user's large list makes any endpoint slow.

use tokio::time::Duration;

/// How much longer than at the fastest of the others a question has to take. 500 ms: longer than the way to another
/// continent and back with a handshake, and what people notice.
const LONGER_BY: Duration = Duration::from_millis(500);

/// How many times as long. 3: where all are slow, none is slower.
const TIMES_AS_LONG: u32 = 3;

/// Whether a question that took so long shows that the endpoint is slow. `others` are the last such times at the other
/// endpoints against which nothing is known, of `all` endpoints. At least half of all have to be among them: what makes
/// many slow is none of their own faults.
pub(crate) fn is_slow(took: Duration, all: usize, others: impl Iterator<Item = Option<Duration>>) -> bool {
    let mut well = 0;
    let fastest = others.inspect(|_| well += 1).flatten().min();
    well * 2 >= all && fastest.is_some_and(|fastest| took >= fastest + LONGER_BY && took >= fastest * TIMES_AS_LONG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_much_slower_than_the_others_is_slow() {
        let of = |took, all, others: &[u64]| {
            let others = others.iter().map(|time| (*time > 0).then(|| Duration::from_millis(*time)));
            is_slow(Duration::from_millis(took), all, others)
        };
        for (took, all, others, expected) in [
            (3, 2, &[1_u64][..], false),
            // In another part of the world.
            (300, 2, &[2], false),
            (502, 2, &[2], true),
            (501, 2, &[2], false),
            // All have much to do.
            (1_400, 2, &[500], false),
            (1_500, 2, &[500], true),
            (1_500, 3, &[900, 500], true),
            // Too many are left out already.
            (1_500, 3, &[500], false),
            (1_500, 4, &[500, 500], true),
            (9_000, 1, &[], false),
            // Of the other nothing is known yet.
            (9_000, 2, &[0], false),
            (9_000, 3, &[0, 5], true),
        ] {
            assert_eq!(of(took, all, others), expected, "{took} ms of {all} beside {others:?}");
        }
    }
}
