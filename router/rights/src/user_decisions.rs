//! Decisions about a user's requests in clusters, by mirrored rules or by access reviews.

use std::cell::RefCell;
use std::sync::Arc;

use parking_lot::Mutex;
use tributary_apimachinery::ClusterName;
use tributary_authentication::{MemberRules, UserInfo};
use tributary_authorization::{Attributes, FleetRights};

use super::actor::{Actor, UserSelector};
use super::allowed_facts::{AllowedFacts, DecisionMethod};
use super::decision_reviews::DecisionReviews;
use super::mirror::RightsMirror;
use super::reviews::{AccessReview, KnownAnswer};

impl AllowedFacts {
    /// Method by which rights in a cluster are decided. `None` if unknown.
    pub(super) fn decision_method(self, mirror: &RightsMirror, cluster: &ClusterName) -> Option<DecisionMethod> {
        match self {
            Self::Cached | Self::WithExpired => mirror.decision_method(cluster),
            Self::Current(decision_method) => decision_method,
            Self::ReviewedSince(_) => Some(DecisionMethod::Reviews),
        }
    }
}

/// A user whose rights are decided, with one snapshot of the compiled rules of all clusters.
pub(super) struct UserDecisions<'a> {
    mirror: &'a RightsMirror,
    allowed_facts: AllowedFacts,
    decision_reviews: Option<&'a Mutex<DecisionReviews>>,
    pub(super) fleet: &'a FleetRights,
    actor: &'a Actor,
    user_selector: UserSelector,
    /// Generation of the user's rights in the cluster of the last check. A generation is a number that changes with the
    /// user's roles and bindings. Cached, because successive checks often concern one cluster.
    generation: RefCell<Option<(ClusterName, u64)>>,
    /// Subjects for access reviews about the user: one for each distinct set of impersonation rules, and one for the
    /// cluster that verified the user. A fleet has few distinct rules.
    subjects: RefCell<Vec<KnownSubject>>,
}

/// Subject of the user in all clusters with these impersonation rules, or in the cluster that verified the user.
struct KnownSubject {
    impersonation_rules: MemberRules,
    is_verified_by: bool,
    subject: Arc<UserInfo>,
}

impl<'a> UserDecisions<'a> {
    /// Creates decisions about a user by the compiled rules in `fleet`. `decision_reviews` collects the missing reviews
    /// and expiry times.
    pub(super) fn new(
        mirror: &'a RightsMirror,
        allowed_facts: AllowedFacts,
        decision_reviews: Option<&'a Mutex<DecisionReviews>>,
        fleet: &'a FleetRights,
        actor: &'a Actor,
        user_selector: UserSelector,
    ) -> Self {
        let (generation, subjects) = (RefCell::default(), RefCell::default());
        Self { mirror, allowed_facts, decision_reviews, fleet, actor, user_selector, generation, subjects }
    }

    /// The user with the groups that this cluster sees.
    pub(super) fn user(&self, cluster: &ClusterName) -> &'a UserInfo {
        self.actor.rbac_user_in(cluster, self.user_selector)
    }

    /// Subject for access reviews in a cluster. `None` if the cluster may not see the user, or is not configured.
    fn subject(&self, cluster: &ClusterName) -> Option<Arc<UserInfo>> {
        let impersonation_rules = &self.mirror.cluster(cluster)?.setup.impersonation;
        let is_verified_by = self.actor.is_verified_by(cluster);
        let mut subjects = self.subjects.borrow_mut();
        if let Some(known) = subjects
            .iter()
            .find(|known| known.impersonation_rules == *impersonation_rules && known.is_verified_by == is_verified_by)
        {
            return Some(Arc::clone(&known.subject));
        }
        let subject = Arc::new(self.actor.subject(self.user_selector, cluster, impersonation_rules).ok()?);
        subjects.push(KnownSubject {
            impersonation_rules: impersonation_rules.clone(),
            is_verified_by,
            subject: Arc::clone(&subject),
        });
        Some(subject)
    }

    /// Generation of the user's rights in a cluster: a number that changes with the user's roles and bindings. A review
    /// result counts only for its own generation.
    fn generation_in(&self, cluster: &ClusterName) -> u64 {
        let mut last = self.generation.borrow_mut();
        match &*last {
            Some((of, generation)) if of == cluster => *generation,
            _ => {
                let generation = self.fleet.generation_in(cluster, self.user(cluster));
                *last = Some((cluster.clone(), generation));
                generation
            }
        }
    }

    /// Cluster's answer to an access review about the user. `None` if no answer counts.
    pub(super) fn review_result(&self, cluster: &ClusterName, requested: &Attributes<'_>) -> Option<bool> {
        let generation = self.generation_in(cluster);
        let review = AccessReview::new(cluster, &self.subject(cluster)?, requested);
        let answers = self.mirror.reviews().answers();
        let known = match self.allowed_facts {
            AllowedFacts::Cached => answers.known_answer(&review, generation),
            AllowedFacts::WithExpired => answers.known_last(&review, generation),
            AllowedFacts::Current(_) => answers.known_now(&review, generation),
            AllowedFacts::ReviewedSince(since) => answers.known_since(&review, generation, since),
        };
        if let Some(decision_reviews) = self.decision_reviews {
            let mut decision_reviews = decision_reviews.lock();
            match known {
                KnownAnswer::Answered(_, until) | KnownAnswer::Silent(until) => {
                    decision_reviews.until = Some(decision_reviews.until.map_or(until, |own| own.min(until)));
                }
                KnownAnswer::Open => drop(decision_reviews.open.insert((review, generation))),
            }
        }
        match known {
            KnownAnswer::Answered(allowed, _) => Some(allowed),
            KnownAnswer::Silent(_) | KnownAnswer::Open => None,
        }
    }

    pub(super) fn allows(&self, cluster: &ClusterName, requested: &Attributes<'_>) -> Option<bool> {
        match self.allowed_facts.decision_method(self.mirror, cluster)? {
            DecisionMethod::Rules => Some(self.fleet.allows(cluster, self.user(cluster), requested)),
            DecisionMethod::Reviews | DecisionMethod::Live => self.review_result(cluster, requested),
        }
    }
}
