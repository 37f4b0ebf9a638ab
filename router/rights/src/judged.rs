//! What somebody may do in clusters, by their rules or by their word.

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
    /// By what it is decided what users may do in a cluster; `None` where that is not known.
    pub(super) fn decides(self, mirror: &RightsMirror, cluster: &ClusterName) -> Option<Decides> {
        match self {
            Self::Held | Self::Last => mirror.decides(cluster),
            Self::Now(decides) => decides,
            Self::Asked(_) => Some(Decides::Reviews),
        }
    }
}

/// Somebody whose rights are judged, in one look at the rules of all clusters.
pub(super) struct Judged<'a> {
    mirror: &'a RightsMirror,
    basis: Basis,
    needed: Option<&'a Mutex<Needed>>,
    pub(super) fleet: &'a FleetRights,
    actor: &'a Actor,
    whom: Whom,
    /// The generation of their rights in the cluster that was asked last: it is asked about many places at once.
    generation: RefCell<Option<(ClusterName, u64)>>,
    /// Who they are to clusters that are told so much of users, and to the one that vouches for them. All clusters of a
    /// fleet have one of few rules.
    subjects: RefCell<Vec<KnownSubject>>,
}

/// Who somebody is to the clusters that are told so much of users: to all of them, or to the one that vouches.
struct KnownSubject {
    told: MemberRules,
    is_vouched_by: bool,
    subject: Arc<Subject>,
}

impl<'a> Judged<'a> {
    /// Of a user, by the rules of this moment. `needed` is told what has to be known.
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

    /// Who it is, as a cluster's rules know them.
    pub(super) fn user(&self, cluster: &ClusterName) -> RbacUser<'a> {
        self.actor.judged_by(cluster, self.whom)
    }

    /// Who they are to a cluster; `None` where it is told of nobody, or is not there.
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

    /// In which generation their rights in a cluster are: what changes them there may change what it says, and nothing
    /// else does.
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

    /// What a cluster that is asked says; `None` where it has not said.
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

    /// Whether a cluster allows something; `None` where that is not known.
    pub(super) fn allows(&self, cluster: &ClusterName, asked: &Attributes<'_>) -> Option<bool> {
        match self.basis.decides(self.mirror, cluster)? {
            Decides::Rules => Some(self.fleet.allows(cluster, self.user(cluster), asked)),
            Decides::Reviews | Decides::Live => self.says(cluster, asked),
        }
    }
}
