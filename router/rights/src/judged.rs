//! Decisions about a user's requests in clusters, by mirrored rules or by access reviews.

use std::cell::RefCell;
use std::sync::Arc;

use parking_lot::Mutex;
use tributary_apimachinery::ClusterName;
use tributary_authentication::MemberRules;
use tributary_authorization::{Attributes, FleetRights, RbacUser};

use super::actor::{Actor, Whom};
use super::basis::{Basis, Decides};
use super::mirror::RightsMirror;
use super::needed::Needed;
use super::reviews::{KnownAnswer, Question};
use super::subject::Subject;

impl Basis {
    /// Method by which rights in a cluster are decided. `None` if unknown.
    pub(super) fn decides(self, mirror: &RightsMirror, cluster: &ClusterName) -> Option<Decides> {
        match self {
            Self::Held | Self::Last => mirror.decides(cluster),
            Self::Now(decides) => decides,
            Self::Asked(_) => Some(Decides::Reviews),
        }
    }
}

/// A user whose rights are decided, with one snapshot of the compiled rules of all clusters.
pub(super) struct Judged<'a> {
    mirror: &'a RightsMirror,
    basis: Basis,
    needed: Option<&'a Mutex<Needed>>,
    pub(super) fleet: &'a FleetRights,
    actor: &'a Actor,
    whom: Whom,
    /// Generation of the user's rights in the cluster of the last check. A generation is a number that changes with the
    /// user's roles and bindings. Cached, because successive checks often concern one cluster.
    generation: RefCell<Option<(ClusterName, u64)>>,
    /// Subjects for access reviews about the user: one for each distinct set of impersonation rules, and one for the
    /// cluster that verified the user. A fleet has few distinct rules.
    subjects: RefCell<Vec<KnownSubject>>,
}

/// Subject of the user in all clusters with these impersonation rules, or in the cluster that verified the user.
struct KnownSubject {
    told: MemberRules,
    is_vouched_by: bool,
    subject: Arc<Subject>,
}

impl<'a> Judged<'a> {
    /// Creates decisions about a user by the compiled rules in `fleet`. `needed` collects the missing reviews and
    /// expiry times.
    pub(super) fn new(
        mirror: &'a RightsMirror,
        basis: Basis,
        needed: Option<&'a Mutex<Needed>>,
        fleet: &'a FleetRights,
        actor: &'a Actor,
        whom: Whom,
    ) -> Self {
        let (generation, subjects) = (RefCell::default(), RefCell::default());
        Self { mirror, basis, needed, fleet, actor, whom, generation, subjects }
    }

    /// The user with the groups that this cluster sees.
    pub(super) fn user(&self, cluster: &ClusterName) -> RbacUser<'a> {
        self.actor.judged_by(cluster, self.whom)
    }

    /// Subject for access reviews in a cluster. `None` if the cluster may not see the user, or is not configured.
    fn subject(&self, cluster: &ClusterName) -> Option<Arc<Subject>> {
        let told = &self.mirror.cluster(cluster)?.setup.impersonation;
        let is_vouched_by = self.actor.is_vouched_by(cluster);
        let mut subjects = self.subjects.borrow_mut();
        if let Some(known) = subjects.iter().find(|known| known.told == *told && known.is_vouched_by == is_vouched_by) {
            return Some(Arc::clone(&known.subject));
        }
        let subject = Arc::new(self.actor.subject(self.whom, cluster, told).ok()?);
        subjects.push(KnownSubject { told: told.clone(), is_vouched_by, subject: Arc::clone(&subject) });
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
    pub(super) fn says(&self, cluster: &ClusterName, asked: &Attributes<'_>) -> Option<bool> {
        let generation = self.generation_in(cluster);
        let question = Question::new(cluster, &self.subject(cluster)?, asked);
        let answers = self.mirror.reviews().answers();
        let known = match self.basis {
            Basis::Held => answers.known_answer(&question, generation),
            Basis::Last => answers.known_last(&question, generation),
            Basis::Now(_) => answers.known_now(&question, generation),
            Basis::Asked(since) => answers.known_since(&question, generation, since),
        };
        if let Some(needed) = self.needed {
            let mut needed = needed.lock();
            match known {
                KnownAnswer::Said(_, until) | KnownAnswer::Silent(until) => {
                    needed.until = Some(needed.until.map_or(until, |own| own.min(until)));
                }
                KnownAnswer::Open => drop(needed.open.insert((question, generation))),
            }
        }
        match known {
            KnownAnswer::Said(allowed, _) => Some(allowed),
            KnownAnswer::Silent(_) | KnownAnswer::Open => None,
        }
    }

    pub(super) fn allows(&self, cluster: &ClusterName, asked: &Attributes<'_>) -> Option<bool> {
        match self.basis.decides(self.mirror, cluster)? {
            Decides::Rules => Some(self.fleet.allows(cluster, self.user(cluster), asked)),
            Decides::Reviews | Decides::Live => self.says(cluster, asked),
        }
    }
}
