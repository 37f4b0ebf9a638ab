//! What a request holds of the flow-control schema that it passes: one place, or, where a schema of the merged view
//! counts by cluster, one at each cluster that it is sent to. Which those are is known only when it is sent.
//!
//! By cluster nothing waits: it is let in at once, or refused. Whoever held places at some clusters while waiting at
//! others could wait for somebody who does the same, and the wait would be taken for the cluster's silence. And a place
//! is held only for as long as its cluster works on the request or sends its answer, so that a slow one does not use up
//! what there is at others. A list that is sent on while it is still read is the exception: it has its places at the
//! clusters that are still to come from the beginning, since a refusal could do nothing but break it off.
//!
//! A token is spent for good. So where it is known before anything is sent which clusters a request goes to, all of
//! them let it in, or none spends anything ([`PlacesAtClusters::spend_at_all`]). Where that shows only as it is sent,
//! page by page, what was sent is spent, whatever a later cluster says.
//!
//! Which cluster has its object may have to be asked of clusters first. Those questions are this process's own, which
//! requests share, and count at no cluster; but nobody is to have them put as often as they like. So where tokens are
//! spent a request counts before the first such question, until it is let in at a cluster, with all that is
//! answered without one ([`PlacesAtClusters::admit_lookup`]). At no time, and in no sum, does it count twice.
//!
//! Of places it takes none for those questions: a cluster that does not answer them would have it held for as long as
//! they are waited for, and what all lookups share would be used up, whatever is looked for. How many questions are
//! under way at a cluster is bounded whatever a schema says, and those who ask take turns (`topology/cluster.rs`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use http::Extensions;
use parking_lot::Mutex;
use tributary_apimachinery::permit::TunnelPermit;
use tributary_apimachinery::{ClusterName, Permit, RequestInfo};
use tributary_authentication::{UserInfo, VerifierName};
use tributary_flow_control::{AdmittedRequest, Attributes, Flow, GovernedSchema, ProvisionalRequest, Resource};

use crate::refusal::{LimitRefusal, Refusal};

/// The resource at which all that no cluster serves is counted.
const UNSERVED: Resource<'static> = Resource { group: "", resource: "", subresource: None };

/// What a request holds of the schema that it passes.
#[derive(Debug)]
pub(crate) enum HeldOfSchema {
    /// One place, whoever answers it.
    Whole {
        /// It is dropped, never read.
        _admitted: AdmittedRequest,
    },
    /// One at each cluster that it is sent to, which whatever is sent there holds, and not this.
    AtClusters(Box<PlacesAtClusters>),
}

/// Who sends a request, as far as flow control looks: the one who authenticated, whomever that one asks to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitedSender<'a> {
    /// What knows the user.
    pub(crate) verifier: &'a VerifierName,
    /// The member that alone vouches for the user, if one does.
    pub(crate) member: Option<&'a ClusterName>,
    /// What it says of the user.
    pub(crate) user: &'a UserInfo,
    /// Where the request comes from.
    pub(crate) address: Option<IpAddr>,
    /// Whose requests take turns with it.
    pub(crate) flow: Flow,
}

impl<'a> LimitedSender<'a> {
    /// What flow control looks at in a request of this sender, by the place at which it comes in. `is_served`: whether
    /// some cluster serves the resource, if it asks for one.
    pub(crate) fn attributes(self, info: &'a RequestInfo, is_served: bool) -> Attributes<'a> {
        let resource = info.resource().map(|request| match is_served {
            true => Resource {
                group: &request.resource.group,
                resource: &request.resource.resource,
                subresource: request.subresource.as_deref(),
            },
            false => UNSERVED,
        });
        Attributes {
            user: tributary_flow_control::User { verifier: self.verifier.as_str(), name: &self.user.username },
            member: self.member.map(ClusterName::as_str),
            groups: &self.user.groups,
            client_address: self.address,
            verb: info.verb.as_str(),
            resource,
            cluster: info.cluster.as_ref().map(ClusterName::as_str),
            is_long_running: info.class().is_long_running(),
            width: 1,
            flow: self.flow,
        }
    }
}

/// The places of one request at the clusters that it is sent to: one at each at any time, however often it is sent
/// there.
#[derive(Debug)]
pub(crate) struct PlacesAtClusters {
    schema: GovernedSchema,
    info: RequestInfo,
    is_served: bool,
    verifier: VerifierName,
    member: Option<ClusterName>,
    user: UserInfo,
    address: Option<IpAddr>,
    flow: Flow,
    may_switch: bool,
    /// Whether it was let in before, as one that is answered without a cluster.
    is_admitted: bool,
    places: Mutex<Places>,
}

/// Where a request was let in.
#[derive(Debug, Default)]
struct Places {
    /// At these clusters. Those who have sent it there hold the place, until the answer is over.
    by_cluster: BTreeMap<ClusterName, Weak<AdmittedRequest>>,
    /// Where it is not known yet which cluster it is for, and clusters are asked: with what is answered without one.
    looking: Option<ProvisionalRequest>,
}

impl PlacesAtClusters {
    /// None yet, of a request for what some cluster serves or none does, which may ask for its connection to be
    /// switched. `is_admitted`: it passes the schema before anything is sent for it, too.
    pub(crate) fn new(
        schema: &GovernedSchema,
        (info, is_served): (&RequestInfo, bool),
        sender: LimitedSender<'_>,
        (may_switch, is_admitted): (bool, bool),
    ) -> Self {
        Self {
            schema: schema.clone(),
            info: info.clone(),
            is_served,
            member: sender.member.cloned(),
            verifier: sender.verifier.clone(),
            user: sender.user.clone(),
            address: sender.address,
            flow: sender.flow,
            may_switch,
            is_admitted,
            places: Mutex::default(),
        }
    }

    /// Whether its place is to be kept for as long as a switched connection is used.
    pub(crate) fn may_switch(&self) -> bool {
        self.may_switch
    }

    /// Lets the request in at a cluster, at once: it shares the place that it still has there, or takes one. `None`
    /// where it has nothing to hold: it was let in there before, and what it spent then is spent. The place is free
    /// again once this and everything else that keeps it is dropped.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn admit(&self, cluster: &ClusterName) -> Result<Option<Arc<AdmittedRequest>>, Refusal> {
        Ok(self.admit_at_all([cluster])?.pop())
    }

    /// Lets the request in at several clusters, or at none of them, as [`admit`](Self::admit) does at one.
    ///
    /// # Errors
    /// 429 of the first cluster that lets in no more.
    pub(crate) fn admit_at_all<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
    ) -> Result<Vec<Arc<AdmittedRequest>>, Refusal> {
        let mut places = self.places.lock();
        let (mut held, mut wanted) = (Vec::new(), Vec::new());
        for cluster in clusters {
            match places.by_cluster.get(cluster).map(Weak::upgrade) {
                Some(Some(own)) => held.push(own),
                Some(None) if self.schema.spends() => {}
                Some(None) | None => wanted.push(Some(cluster)),
            }
        }
        // Refused, it has had clusters asked for it, if it has: that counts once this is dropped.
        let looking = places.looking.take();
        let admitted = self.let_in(&wanted)?;
        if let Some(looking) = looking {
            looking.withdraw();
        }
        for (cluster, admitted) in wanted.into_iter().flatten().zip(admitted) {
            let admitted = Arc::new(admitted.keep());
            places.by_cluster.insert(cluster.clone(), Arc::downgrade(&admitted));
            held.push(admitted);
        }
        Ok(held)
    }

    /// Lets a request in that is about to be sent to these clusters, and perhaps to further ones later, as
    /// [`admit_at_all`](Self::admit_at_all) where that spends something for good. Elsewhere it takes nothing: a place is
    /// free again by itself if another cluster refuses, and is not to be held before its cluster is asked.
    ///
    /// # Errors
    /// 429 of the first cluster that lets in no more.
    pub(crate) fn spend_at_all<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
    ) -> Result<Vec<Arc<AdmittedRequest>>, Refusal> {
        if self.schema.spends() { self.admit_at_all(clusters) } else { Ok(Vec::new()) }
    }

    /// Whether it was let in at no cluster: nothing was sent for it.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.places.lock().by_cluster.is_empty()
    }

    /// Lets the request in that is about to have clusters asked where its object is, at once. Where it spends a token
    /// it counts with all that is answered without a cluster until it is let in at one, whose own limit is then the
    /// one that it counts for. A request that was let in anywhere has passed. Of places it takes none, and is refused
    /// only where there are none at all.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn admit_lookup(&self) -> Result<(), Refusal> {
        if !self.schema.spends() && self.schema.in_force() != Some(0) {
            return Ok(());
        }
        let mut places = self.places.lock();
        if !self.is_admitted && places.by_cluster.is_empty() && places.looking.is_none() {
            places.looking = self.let_in(&[None])?.pop();
        }
        Ok(())
    }

    /// Lets a request in that is answered though nothing was sent for it, at once: it counts with all that is answered
    /// without a cluster, as it does already if clusters were asked where its object is.
    ///
    /// # Errors
    /// 429.
    pub(crate) fn admit_nowhere(&self) -> Result<Option<AdmittedRequest>, Refusal> {
        let looking = self.places.lock().looking.take();
        let admitted = if looking.is_some() { looking } else { self.let_in(&[None])?.pop() };
        Ok(admitted.map(ProvisionalRequest::keep))
    }

    /// Lets the request in at each of these clusters, or at none; `None` is what is answered without any.
    ///
    /// # Errors
    /// 429 of the first that lets in no more.
    fn let_in(&self, clusters: &[Option<&ClusterName>]) -> Result<Vec<ProvisionalRequest>, Refusal> {
        let sender = LimitedSender {
            verifier: &self.verifier,
            member: self.member.as_ref(),
            user: &self.user,
            address: self.address,
            flow: self.flow,
        };
        let attributes = sender.attributes(&self.info, self.is_served);
        let names: Vec<_> = clusters.iter().map(|cluster| cluster.map(ClusterName::as_str)).collect();
        self.schema.admit_at_all(&attributes, &names).map_err(|(refusing, refused)| {
            let cluster = clusters.get(refusing).copied().flatten().cloned();
            LimitRefusal::FlowControl { cluster, refused }.into()
        })
    }
}

/// Has whoever joins the ends of a switched connection keep this, beside what is kept already, until they part.
pub(crate) fn kept_by_tunnel(extensions: &mut Extensions, kept: impl Send + 'static) {
    let others = extensions.remove::<TunnelPermit>();
    extensions.insert(TunnelPermit::from(Permit::keeping((others, kept))));
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tributary_flow_control::{
        Dimension, FlowControl, Limited, MaxRequestsInflight, Schema, SchemaKind, TokenBucket,
    };

    use super::*;
    use crate::User;

    /// A schema that counts by cluster.
    fn schema(kind: SchemaKind) -> GovernedSchema {
        let control = FlowControl::new([Schema { name: "one".into(), kind }]).unwrap();
        control.schema("one").unwrap().clone()
    }

    /// One token a second for each cluster, and none saved up.
    fn a_token_a_second() -> GovernedSchema {
        let limit = TokenBucket { qps: NonZeroU32::MIN, burst: NonZeroU32::MIN };
        schema(SchemaKind::TokenBucket(Limited { limit, by: vec![Dimension::Cluster], queueing: None }))
    }

    /// So many places at each cluster.
    fn places(max: u32) -> GovernedSchema {
        let limit = MaxRequestsInflight { max, count_long_running: true };
        schema(SchemaKind::MaxRequestsInflight(Limited { limit, by: vec![Dimension::Cluster], queueing: None }))
    }

    fn request(schema: &GovernedSchema) -> PlacesAtClusters {
        let user = User::named("test", "ann");
        let info = RequestInfo::parse("DELETE", "/api/v1/namespaces/default/configmaps/x", None).unwrap();
        let (verifier, flow) = (&user.authority.verifier, Flow::of(&"ann"));
        let sender = LimitedSender { verifier, member: None, user: &user.info, address: None, flow };
        PlacesAtClusters::new(schema, (&info, true), sender, (false, false))
    }

    #[tokio::test(start_paused = true)]
    async fn where_one_cluster_refuses_a_request_for_several_nothing_is_spent_at_the_others() {
        let schema = a_token_a_second();
        let [a, b] = ["a", "b"].map(|name| ClusterName::new(name).unwrap());
        let (one, other) = (request(&schema), request(&schema));
        drop(one.admit(&b).unwrap());
        let refused = other.spend_at_all([&a, &b]).unwrap_err();
        assert!(refused.to_string().contains("cluster b"), "{refused}");
        assert!(other.is_nowhere());
        assert!(other.admit(&a).unwrap().is_some(), "its token is there");
        // What one has spent itself is no reason to refuse it.
        assert!(one.spend_at_all([&b]).unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_clusters_are_asked_for_counts_before_they_are_asked_and_once() {
        let schema = a_token_a_second();
        let a = ClusterName::new("a").unwrap();
        let [one, other, third] = [(); 3].map(|()| request(&schema));
        one.admit_lookup().unwrap();
        one.admit_lookup().unwrap();
        assert!(other.admit_lookup().is_err() && other.admit_nowhere().is_err());
        // It is found at a, and counts there alone.
        assert!(one.admit(&a).unwrap().is_some());
        one.admit_lookup().unwrap();
        other.admit_lookup().unwrap();
        // What a refuses has been looked for all the same.
        assert!(other.admit(&a).is_err());
        assert!(third.admit_lookup().is_err());
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        // So has what its client gave up.
        third.admit_lookup().unwrap();
        drop(third);
        assert!(other.admit_lookup().is_err());
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        other.admit_lookup().unwrap();
        assert!(other.admit_nowhere().unwrap().is_some(), "it is nowhere, and has counted");
    }

    #[tokio::test]
    async fn a_lookup_holds_no_place_and_is_refused_where_there_is_none() {
        let (one, none) = (places(1), places(0));
        let (first, second, closed) = (request(&one), request(&one), request(&none));
        first.admit_lookup().unwrap();
        second.admit_lookup().unwrap();
        assert!(one.usage().in_flight == 0 && first.is_nowhere());
        // Who turns out to be answered without a cluster has a place while that lasts, and keeps nobody from looking.
        let nowhere = first.admit_nowhere().unwrap();
        assert!(nowhere.is_some() && second.admit_nowhere().is_err());
        request(&one).admit_lookup().unwrap();
        assert!(closed.admit_lookup().is_err());
    }

    #[tokio::test]
    async fn what_holds_places_and_no_tokens_takes_none_before_it_is_sent() {
        let schema = places(1);
        let [a, b] = ["a", "b"].map(|name| ClusterName::new(name).unwrap());
        let (one, other) = (request(&schema), request(&schema));
        assert!(one.spend_at_all([&a, &b]).unwrap().is_empty());
        let of_b = other.admit(&b).unwrap().unwrap();
        assert!(one.admit_at_all([&a, &b]).is_err());
        assert_eq!(other.admit_at_all([&a, &b]).unwrap().len(), 2, "it has one at b, and takes one at a");
        drop(of_b);
        assert_eq!(one.admit_at_all([&a, &b]).unwrap().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_is_spent_once_for_each_cluster_that_a_request_is_sent_to() {
        let schema = a_token_a_second();
        let [a, b] = ["a", "b"].map(|name| ClusterName::new(name).unwrap());
        let (one, other) = (request(&schema), request(&schema));
        assert!(one.is_nowhere());
        let first = one.admit(&a).unwrap().unwrap();
        let again = one.admit(&a).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &again) && !one.is_nowhere());
        drop((first, again));
        // It comes back to a cluster that has answered: to find what has moved, for the next page of a list.
        assert!(one.admit(&a).unwrap().is_none());
        assert!(one.admit(&b).unwrap().is_some(), "each cluster has a limit of its own");
        assert!(other.admit(&a).is_err() && other.is_nowhere());
        // What is sent nowhere has one, too.
        assert!(one.admit_nowhere().is_ok());
        assert!(other.admit_nowhere().is_err());
    }

    #[tokio::test]
    async fn a_place_is_held_for_as_long_as_something_is_sent_and_taken_anew_for_the_next() {
        let schema = places(1);
        let a = ClusterName::new("a").unwrap();
        let (one, other) = (request(&schema), request(&schema));
        let first = one.admit(&a).unwrap().unwrap();
        let again = one.admit(&a).unwrap().unwrap();
        assert!(Arc::ptr_eq(&first, &again), "it does not wait for itself");
        drop(first);
        assert!(other.admit(&a).is_err());
        drop(again);
        let of_other = other.admit(&a).unwrap().unwrap();
        assert!(one.admit(&a).is_err());
        drop(of_other);
        assert!(one.admit(&a).unwrap().is_some());
    }
}
