//! Identity with which a caller acts in a cluster.

use http::Method;
use tributary_answers::refusal::{ClusterRefusal, MemberRefusal, Refusal, RequestRefusal};
use tributary_apimachinery::{ClusterName, GroupVersionResource, Mount, RequestInfo};
use tributary_authentication::{MemberRules, NotSent, UserInfo};
use tributary_authorization::Attributes;
use tributary_proxy::{Impersonation, InvalidImpersonation};

use super::caller_rights::CallerRights;
use super::remembered_actor::headers_of;

/// Text about a cluster that allowed the impersonation before Tributary lost the connection to it.
const IMPERSONATION_UNCONFIRMED: &str =
    "the cluster has not confirmed that you may still impersonate the user; try again";

/// A request as Tributary sends it to a cluster.
pub struct SentRequest<'a> {
    /// HTTP method.
    pub method: &'a Method,
    /// Path of the request at the cluster.
    pub path: &'a str,
    /// Query; `None` if `path` contains the query.
    pub query: Option<&'a str>,
}

impl SentRequest<'_> {
    /// Parses the request as the cluster parses it. A path in a cluster may begin with any text, even with
    /// `/clusters/`.
    ///
    /// # Errors
    /// 400 if the path cannot be parsed.
    pub fn info(&self, cluster: &ClusterName) -> Result<RequestInfo, Refusal> {
        let target = match self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.to_owned(),
        };
        let (path, query) = target.split_once('?').map_or((&*target, None), |(path, query)| (path, Some(query)));
        let mount = Mount::Cluster(cluster.clone());
        RequestInfo::parse_at(&mount, self.method.as_str(), path, query).map_err(|_| RequestRefusal::Path.into())
    }
}

impl CallerRights {
    /// Returns the identity of the caller in a cluster for a forwarded request. The cluster must allow the
    /// impersonation for exactly this request.
    ///
    /// # Errors
    /// * 403 with the reason if the cluster may not see the user or denies the impersonation.
    /// * 503 if the cluster's current rules are unknown. The message names the cluster only if the impersonation was
    ///   allowed before.
    /// * 404 if a different cluster verified the caller.
    pub fn identity(
        &self,
        cluster: &ClusterName,
        rules: &MemberRules,
        sent: &SentRequest<'_>,
    ) -> Result<UserInfo, Refusal> {
        let identity = self.actor.identity(cluster, rules).map_err(|why| match why {
            NotSent::OfAnotherCluster(_) => Refusal::from(ClusterRefusal::NotConfigured(cluster.clone())),
            why => RequestRefusal::NotSent(why).into(),
        })?;
        if self.actor.impersonated_user().is_none() {
            return Ok(identity);
        }
        // The cluster does not check the client's impersonation again. So this check needs up-to-date facts: with an
        // old answer, Tributary would use a right that the cluster has removed since.
        let (now, info) = (self.now_in(cluster), sent.info(cluster)?);
        let (fleet, request) = (self.mirror.compiled(), Attributes::from_request(&info));
        match now.if_visible(&fleet, cluster, &request, || Some(true)) {
            Some(true) => Ok(identity),
            // A failure of this cluster alone: other clusters may allow the impersonation, and the calling function may
            // answer without this cluster.
            Some(false) => Err(MemberRefusal::ForbidsImpersonation(
                now.impersonation_forbidden(&fleet, [cluster], &request).status(),
            )
            .into()),
            None if self.if_visible(&fleet, cluster, &request, || Some(true)) == Some(true) => {
                Err(self.impersonation_unconfirmed(cluster))
            }
            None => {
                let (user, name) = (GroupVersionResource::new("", "v1", "users"), self.acting_name().to_owned());
                Err(ClusterRefusal::rights_unknown(user, name).into())
            }
        }
    }

    /// Returns impersonation headers for an identity. Reuses the headers of the connection's previous request if both
    /// identities are equal.
    ///
    /// # Errors
    /// [`InvalidImpersonation`] for a name that no header can carry.
    pub fn headers(&self, identity: UserInfo) -> Result<Impersonation, InvalidImpersonation> {
        match &self.remembered {
            Some(remembered) => remembered.headers(identity),
            None => headers_of(&identity),
        }
    }

    /// Makes the 503 for a cluster that allowed the impersonation when its rules were last known. The response has no
    /// Retry-After if the cluster is unreachable.
    fn impersonation_unconfirmed(&self, cluster: &ClusterName) -> Refusal {
        match self.mirror.cluster(cluster).and_then(|own| own.out_of_reach()) {
            Some(failure) => {
                MemberRefusal::Undecided { unknown: vec![format!("{failure}: {IMPERSONATION_UNCONFIRMED}")] }.into()
            }
            None => MemberRefusal::unavailable(cluster, IMPERSONATION_UNCONFIRMED).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Below `/clusters/a`, the path `/clusters/b/…` is a path of the cluster `a` and has no resource.
    #[test]
    fn forwarded_path_is_parsed_as_its_cluster_parses_it() {
        let cluster = ClusterName::new("a").unwrap();
        for (path, query, expected) in [
            ("/clusters/b/api/v1/secrets", None, Some("/clusters/b/api/v1/secrets")),
            ("/clusters/b/api/v1/secrets", Some("watch=1"), Some("/clusters/b/api/v1/secrets")),
            ("/clusters/b", None, Some("/clusters/b")),
            ("/api/v1/secrets?watch=1", None, None),
        ] {
            let info = SentRequest { method: &Method::GET, path, query }.info(&cluster).unwrap();
            let identity = match Attributes::from_request(&info) {
                Attributes::NonResource { verb, path } => Some((verb.to_owned(), path.into_owned())),
                Attributes::Resource(_) => None,
            };
            assert_eq!(identity, expected.map(|path| ("get".to_owned(), path.to_owned())), "{path}");
        }
    }
}
