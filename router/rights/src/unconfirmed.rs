//! Clusters that have not answered the latest reviews of a stream, and the time for which the stream continues. This
//! module does no I/O.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

use super::reviews::{APPROVAL_TTL, AccessReview};

/// Time for which a stream continues while the confirmation of its rights is due. 60 s, as long as an approval is
/// valid. The stream needs this time only while its review waits for a permit. If a cluster does not answer at all, its
/// last answer stays valid for some time.
pub(super) const CONFIRMED_WITHIN: Duration = APPROVAL_TTL;

/// Clusters that have not confirmed the rights of a stream, with the times since which they have not.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    /// Time since which each review has no answer. Each review has its own time: with many reviews, some review is
    /// always missing, but each one only for a short time.
    since: HashMap<AccessReview, Instant>,
    /// For each cluster, the time since which its oldest unanswered review is missing.
    oldest: BTreeMap<ClusterName, Instant>,
}

impl Unconfirmed {
    /// Sets the reviews that have no answer now. The generations of the user's rights are ignored.
    pub(super) fn set_missing_reviews(&mut self, open: &HashSet<(AccessReview, u64)>, now: Instant) {
        let open: HashSet<&AccessReview> = open.iter().map(|(review, _)| review).collect();
        self.since.retain(|review, _| open.contains(review));
        for review in open {
            if !self.since.contains_key(review) {
                self.since.insert(review.clone(), now);
            }
        }
        self.oldest.clear();
        for (AccessReview { cluster, .. }, since) in &self.since {
            let oldest = self.oldest.entry(cluster.clone()).or_insert(*since);
            *oldest = (*oldest).min(*since);
        }
    }

    pub(super) fn clear(&mut self) {
        self.since.clear();
        self.oldest.clear();
    }

    /// Returns whether the last answer of a cluster is still valid although a review is missing.
    pub(super) fn is_valid(&self, cluster: &ClusterName, now: Instant) -> bool {
        self.oldest.get(cluster).is_some_and(|since| now < *since + CONFIRMED_WITHIN)
    }

    /// Returns the time at which the last answer of the next cluster stops being valid.
    pub(super) fn ends(&self, now: Instant) -> Option<Instant> {
        self.oldest.values().map(|since| *since + CONFIRMED_WITHIN).filter(|end| *end > now).min()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tributary_authentication::UserInfo;
    use tributary_authorization::{Attributes, ResourceAttributes};

    use super::*;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new(name).unwrap()
    }

    /// Reviews whether ann may list pods, in a generation of rights. Each word is `cluster/namespace`.
    fn open(words: &str, generation: u64) -> HashSet<(AccessReview, u64)> {
        let user = Arc::new(UserInfo { username: "ann".to_owned(), ..UserInfo::default() });
        let of = |word: &str| {
            let (name, namespace) = word.split_once('/').unwrap();
            let attributes =
                ResourceAttributes { verb: "list", resource: "pods", namespace, ..ResourceAttributes::default() };
            (AccessReview::new(&cluster(name), &user, &Attributes::Resource(attributes)), generation)
        };
        words.split(' ').filter(|word| !word.is_empty()).map(of).collect()
    }

    #[test]
    fn last_review_answer_is_used_for_a_minute_during_a_review() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let [a, b] = ["a", "b"].map(cluster);
        let mut unconfirmed = Unconfirmed::default();
        assert!(!unconfirmed.is_valid(&a, at(0)) && unconfirmed.ends(at(0)).is_none());
        unconfirmed.set_missing_reviews(&open("a/", 1), at(0));
        // Changed roles of the user (a new generation of rights) do not restart the time.
        unconfirmed.set_missing_reviews(&open("a/ b/", 2), at(30));
        assert_eq!((unconfirmed.is_valid(&a, at(59)), unconfirmed.is_valid(&a, at(60))), (true, false));
        assert_eq!((unconfirmed.is_valid(&b, at(89)), unconfirmed.is_valid(&b, at(90))), (true, false));
        assert_eq!([0, 60, 90].map(|now| unconfirmed.ends(at(now))), [Some(at(60)), Some(at(90)), None]);
        // The cluster has answered the missing review, and a later review is missing.
        unconfirmed.set_missing_reviews(&open("b/", 2), at(50));
        unconfirmed.set_missing_reviews(&open("a/ b/", 2), at(55));
        assert_eq!((unconfirmed.is_valid(&a, at(114)), unconfirmed.is_valid(&a, at(115))), (true, false));
        unconfirmed.clear();
        assert!(!unconfirmed.is_valid(&a, at(56)));
    }

    /// With many reviews, the first answer expires before the last review is answered.
    #[test]
    fn rights_stay_confirmed_while_each_review_is_answered_in_time() {
        let begin = Instant::now();
        let mut unconfirmed = Unconfirmed::default();
        for second in 0..300 {
            let words = [second, second + 1, second + 2].map(|number| format!("a/n{number}"));
            // A review that never gets an answer still ends the stream.
            let stuck = if second >= 200 { "a/stuck" } else { "" };
            let now = begin + Duration::from_secs(second);
            unconfirmed.set_missing_reviews(&open(&format!("{} {stuck}", words.join(" ")), 1), now);
            assert_eq!(unconfirmed.is_valid(&cluster("a"), now), second < 260, "after {second} s");
        }
    }
}
