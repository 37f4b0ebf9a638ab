//! Helm releases: what their records are, and where members said a moment ago that they have some. Records are Secrets or
//! ConfigMaps labelled with the release's name (`pkg/storage/driver` of Helm 3 and 4).

use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::Instant;
use tributary_apimachinery::rewrite::{self, BodyKind, Format, ReleaseFacts};
use tributary_apimachinery::{ClusterName, GroupVersionResource, Object, ResourceRequest};

use crate::grounds::Evidence;

/// The release that an object belongs to, or is a record of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Release {
    /// Its namespace; `None` for a release of any namespace, where only the name is known.
    pub(crate) namespace: Option<String>,
    /// Its name; `None` for any release of the namespace, where no name is known.
    pub(crate) name: Option<String>,
    /// What its records are; of an object that belongs to one that is not known.
    records: Option<GroupVersionResource>,
}

/// What records may be.
const RECORDS: [&str; 2] = ["secrets", "configmaps"];

/// The labels of records, and of whatever else Helm writes but hooks (`pkg/action/validate.go`): only an object with one
/// of them is looked at further.
const MARKS: [(&str, &str); 2] = [("owner", "helm"), ("app.kubernetes.io/managed-by", "Helm")];

/// Whether objects of a resource may be records of a release.
pub(crate) fn are_records(resource: &GroupVersionResource) -> bool {
    resource.group.is_empty() && RECORDS.contains(&&*resource.resource)
}

impl Release {
    /// The release that an object names. A hook, which has no annotation of Helm's that does, names it by a label that most
    /// charts give it; one that has not belongs to a release of its namespace.
    pub(super) fn of(request: &ResourceRequest, said: &ReleaseFacts) -> Option<Self> {
        let own = request.namespace.clone();
        if are_records(&request.resource) && said.record_owner.as_deref() == Some("helm") {
            let (namespace, name) = (Some(own?), Some(said.record_name.clone()?));
            return Some(Self { namespace, name, records: Some(request.resource.clone()) });
        }
        let (namespace, name) = match (&said.name, &said.hook) {
            (Some(name), _) => (Some(said.namespace.clone().or(own)?), Some(name.clone())),
            (None, Some(_)) if own.is_some() || said.instance.is_some() => (own, said.instance.clone()),
            _ => return None,
        };
        // It becomes a part of a path.
        let is_one = |text: &String| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        namespace.iter().all(is_one).then_some(Self { namespace, name, records: None })
    }

    /// The release that a member's object names.
    pub(super) fn of_object(request: &ResourceRequest, object: &Object) -> Option<Self> {
        if !MARKS.iter().any(|(label, value)| object.label(label) == Some(value)) {
            return None;
        }
        let facts = rewrite::read(Format::Json, BodyKind::Object, object.json()).ok()?;
        Self::of(request, &facts.release)
    }

    /// Whether it is known of one of its records, and not of an object that belongs to it.
    pub(super) fn is_of_record(&self) -> bool {
        self.records.is_some()
    }

    /// The resources that its records may be of.
    pub(super) fn resources(&self) -> Vec<GroupVersionResource> {
        match &self.records {
            Some(resource) => vec![resource.clone()],
            None => RECORDS.map(|name| GroupVersionResource::new("", "v1", name)).into(),
        }
    }

    /// Whether an object is one of its records.
    pub(super) fn has(&self, object: &Object) -> bool {
        object.label("owner") == Some("helm")
            && self.name.as_deref().is_none_or(|name| object.label("name") == Some(name))
    }

    /// The question for one of its records.
    pub(super) fn question(&self, resource: &GroupVersionResource) -> String {
        let name = self.name.iter().map(|name| format!(",name={name}"));
        let selector = "owner=helm".to_owned() + &name.collect::<String>();
        let selector = utf8_percent_encode(&selector, NON_ALPHANUMERIC);
        format!("{}?labelSelector={selector}&limit=1", resource.path(self.namespace.as_deref()))
    }
}

/// Where releases are that members were asked for a moment ago: one upgrade writes dozens of objects.
#[derive(Default)]
pub(crate) struct KnownReleases(Mutex<Known>);

#[derive(Default)]
struct Known {
    answers: HashMap<ReleaseKey, (Instant, Evidence)>,
    /// How often something was forgotten: an answer to a question from before says nothing of what was written since.
    generation: u64,
}

/// Which question was asked, in whose name.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct ReleaseKey {
    /// Whom the client asks to be, if it does.
    pub(super) impersonation: Box<[(HeaderName, HeaderValue)]>,
    /// What its records are.
    pub(super) resource: GroupVersionResource,
    /// Whose they are.
    pub(super) release: Release,
    /// Which clusters were asked: what others have the answer does not say.
    pub(super) clusters: Box<[ClusterName]>,
}

/// How long an answer is good for. 10 s: most upgrades take less, and records that are written through this process end
/// it at once.
const KEPT: Duration = Duration::from_secs(10);

/// How many answers are kept: more than clients upgrade releases in 10 s.
const KEPT_MAX: usize = 1_000;

impl KnownReleases {
    /// What members answered to a question a moment ago.
    pub(super) fn get(&self, key: &ReleaseKey) -> Option<Evidence> {
        let known = self.0.lock();
        known.answers.get(key).filter(|(at, _)| at.elapsed() < KEPT).map(|(_, evidence)| evidence.clone())
    }

    /// When a question is put, as [`keep`](Self::keep) asks for it.
    pub(super) fn generation(&self) -> u64 {
        self.0.lock().generation
    }

    /// Keeps the answer to a question that was put at this generation, if there is room and nothing was forgotten since.
    pub(super) fn keep(&self, key: ReleaseKey, asked_at: u64, evidence: Evidence) {
        let mut known = self.0.lock();
        known.answers.retain(|_, (at, _)| at.elapsed() < KEPT);
        if known.answers.len() < KEPT_MAX && known.generation == asked_at {
            known.answers.insert(key, (Instant::now(), evidence));
        }
    }

    /// Forgets what is known of a namespace in which a record may have been written.
    pub(crate) fn forget(&self, namespace: &str) {
        let mut known = self.0.lock();
        known.generation += 1;
        known.answers.retain(|key, _| key.release.namespace.as_deref().is_some_and(|own| own != namespace));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(clusters: &[&str]) -> ReleaseKey {
        let (namespace, name) = (Some("n".to_owned()), Some("r".to_owned()));
        ReleaseKey {
            impersonation: Box::default(),
            resource: GroupVersionResource::new("", "v1", "secrets"),
            release: Release { namespace, name, records: None },
            clusters: clusters.iter().map(|name| name.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn an_answer_is_of_the_clusters_that_were_asked() {
        let known = KnownReleases::default();
        known.keep(key(&["a"]), known.generation(), Evidence::default());
        assert_eq!(known.get(&key(&["a"])), Some(Evidence::default()));
        assert_eq!(known.get(&key(&["a", "b"])), None);
    }

    #[test]
    fn what_was_asked_before_a_record_was_written_is_not_kept() {
        let known = KnownReleases::default();
        let before = known.generation();
        known.forget("n");
        known.keep(key(&["a"]), before, Evidence::default());
        assert_eq!(known.get(&key(&["a"])), None);
        known.keep(key(&["a"]), known.generation(), Evidence::default());
        assert_eq!(known.get(&key(&["a"])), Some(Evidence::default()));
    }
}
