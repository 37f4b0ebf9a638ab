//! What logs, metrics and traces say of a request that the router alone knows: who was asked for it, and by which
//! policies. And what members are told, so that their logs can be laid beside ours.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use tributary_apimachinery::ClusterName;

use crate::metrics::RequestSource;

/// The header by which a request's ID travels: from the client, to members, which as all kube-apiservers take it over, and
/// back to the client.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// How many clusters are named; of further ones the number is told.
const NAMED_MAX: usize = 50;

/// A request that is followed, among the request's extensions. Clones are of the same request.
#[derive(Clone, Debug, Default)]
pub struct RequestTrace(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    audit_id: Option<HeaderValue>,
    found: Mutex<Found>,
}

#[derive(Debug, Default)]
struct Found {
    from_memory: bool,
    asked: BTreeSet<ClusterName>,
    policies: Vec<String>,
}

/// Which clusters were asked for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AskedClusters {
    /// None.
    None,
    /// This one alone.
    One(ClusterName),
    /// More than one.
    Several,
}

impl RequestTrace {
    /// Of a request with this audit ID: members are told it.
    pub fn audited(id: HeaderValue) -> Self {
        Self(Arc::new(Inner { audit_id: Some(id), ..Inner::default() }))
    }

    /// Who answered, as far as is known by now: `memory`, the names of the clusters that were asked, both, or
    /// `tributary`, for what this process says by itself: discovery, health, refusals.
    pub fn answered_by(&self) -> Cow<'static, str> {
        let found = self.0.found.lock();
        if found.asked.is_empty() {
            return if found.from_memory { "memory" } else { "tributary" }.into();
        }
        let memory = found.from_memory.then_some("memory");
        let names: Vec<&str> = memory.into_iter().chain(found.asked.iter().map(ClusterName::as_str)).collect();
        match names.len().saturating_sub(NAMED_MAX) {
            0 => names.join(",").into(),
            more => format!("{},and {more} more", names[..NAMED_MAX].join(",")).into(),
        }
    }

    /// Which dispatch policies took the request, each with what it did; `None` where none did, or nobody wants to know.
    pub fn dispatched_by(&self) -> Option<String> {
        let found = self.0.found.lock();
        (!found.policies.is_empty()).then(|| found.policies.join("; "))
    }

    /// Whether somebody wants to know which policies took the request.
    pub(crate) fn tells_policies(&self) -> bool {
        self.0.audit_id.is_some()
    }

    /// Notes that a policy took the request.
    pub(crate) fn note_policy(&self, policy: String) {
        let mut found = self.0.found.lock();
        match found.policies.len().cmp(&NAMED_MAX) {
            Ordering::Less => found.policies.push(policy),
            Ordering::Equal => found.policies.push("and more".to_owned()),
            Ordering::Greater => {}
        }
    }

    /// Notes that a cluster is asked, and tells it the ID of a request that is audited.
    pub(crate) fn ask(&self, cluster: &ClusterName, headers: &mut HeaderMap) {
        if let Some(id) = &self.0.audit_id {
            headers.insert(AUDIT_ID, id.clone());
        }
        self.0.found.lock().asked.insert(cluster.clone());
    }

    /// Which clusters have been asked by now.
    pub(crate) fn asked(&self) -> AskedClusters {
        let found = self.0.found.lock();
        let mut asked = found.asked.iter();
        match (asked.next(), asked.next()) {
            (None, _) => AskedClusters::None,
            (Some(only), None) => AskedClusters::One(only.clone()),
            (Some(_), Some(_)) => AskedClusters::Several,
        }
    }

    /// Notes who answers.
    pub(crate) fn note_source(&self, source: RequestSource) {
        self.0.found.lock().from_memory = source == RequestSource::Memory;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_asked_is_told_once_and_gets_the_id() {
        let trace = RequestTrace::audited(HeaderValue::from_static("one"));
        assert_eq!(trace.answered_by(), "tributary");
        assert_eq!(trace.asked(), AskedClusters::None);
        trace.note_source(RequestSource::Memory);
        assert_eq!(trace.answered_by(), "memory");
        let mut headers = HeaderMap::new();
        for name in ["us", "eu", "us"] {
            trace.clone().ask(&ClusterName::new(name).unwrap(), &mut headers);
        }
        assert_eq!(trace.answered_by(), "memory,eu,us");
        assert_eq!(trace.asked(), AskedClusters::Several);
        trace.note_source(RequestSource::Member);
        assert_eq!(trace.answered_by(), "eu,us");
        assert_eq!(headers.get_all("audit-id").iter().collect::<Vec<_>>(), ["one"]);
        for number in 0..100 {
            trace.ask(&ClusterName::new(&format!("c{number:03}")).unwrap(), &mut headers);
        }
        let text = trace.answered_by();
        assert!(text.starts_with("c000,c001,") && text.ends_with(",c049,and 52 more"), "{text}");
    }

    #[test]
    fn members_are_told_no_id_of_a_request_that_is_not_audited() {
        let (trace, mut headers) = (RequestTrace::default(), HeaderMap::new());
        let eu = ClusterName::new("eu").unwrap();
        trace.ask(&eu, &mut headers);
        assert_eq!((headers.len(), trace.asked()), (0, AskedClusters::One(eu)));
        assert!(!trace.tells_policies());
    }

    #[test]
    fn the_policies_that_took_it_are_told_and_no_more_than_some() {
        let trace = RequestTrace::audited(HeaderValue::from_static("one"));
        assert_eq!(trace.dispatched_by(), None);
        for number in 0..100 {
            trace.note_policy(format!("p{number}"));
        }
        let text = trace.dispatched_by().unwrap();
        assert!(text.starts_with("p0; p1; ") && text.ends_with("p49; and more"), "{text}");
    }
}
