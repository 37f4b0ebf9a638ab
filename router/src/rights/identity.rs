//! As whom a caller acts in a cluster.

use http::Method;
use tributary_apimachinery::{ClusterName, GroupVersionResource, RequestInfo};
use tributary_authentication::{MemberRules, NotSent, UserInfo};
use tributary_authorization::Attributes;

use super::caller_rights::CallerRights;
use crate::refusal::{ClusterRefusal, Refusal, RequestRefusal};

/// A request as a cluster is sent it.
pub(crate) struct SentRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
}

impl SentRequest<'_> {
    /// The request as the cluster reads it, by its whole target: a path may come with its query.
    ///
    /// # Errors
    /// 400 where it cannot be read.
    fn info(&self) -> Result<RequestInfo, Refusal> {
        let target = match self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.to_owned(),
        };
        let (path, query) = target.split_once('?').map_or((&*target, None), |(path, query)| (path, Some(query)));
        RequestInfo::parse(self.method.as_str(), path, query).map_err(|_| RequestRefusal::Path.into())
    }
}

impl CallerRights {
    /// As whom the caller acts in a cluster, for a request that is sent to it: nobody is sent whom the cluster does not
    /// let the caller be for just this.
    ///
    /// # Errors
    /// 403 that says why the cluster is not told; 503 where what it allows is not known. 404 where another cluster
    /// vouches for the caller: this one is not there then.
    pub(crate) fn identity(
        &self,
        cluster: &ClusterName,
        rules: &MemberRules,
        sent: &SentRequest<'_>,
    ) -> Result<UserInfo, Refusal> {
        let told = self.actor.identity(cluster, rules).map_err(|why| match why {
            NotSent::OfAnotherCluster(_) => Refusal::from(ClusterRefusal::NotConfigured(cluster.clone())),
            why => RequestRefusal::NotSent(why).into(),
        })?;
        // Whoever acts as themselves is the cluster's own to judge.
        if self.actor.given().is_none() {
            return Ok(told);
        }
        let (fleet, info) = (self.mirror.compiled(), sent.info()?);
        let request = Attributes::of(&info);
        match self.there_for(&fleet, cluster, &request, || Some(true)) {
            Some(true) => Ok(told),
            Some(false) => Err(self.not_let(&fleet, [cluster], &request)),
            None => {
                let (user, name) = (GroupVersionResource::new("", "v1", "users"), self.acting_name().to_owned());
                Err(ClusterRefusal::rights_unknown(user, name).into())
            }
        }
    }
}
