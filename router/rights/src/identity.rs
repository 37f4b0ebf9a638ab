//! As whom a caller acts in a cluster.

use http::Method;
use tributary_answers::refusal::{ClusterRefusal, MemberRefusal, Refusal, RequestRefusal};
use tributary_apimachinery::{ClusterName, GroupVersionResource, Mount, RequestInfo};
use tributary_authentication::{MemberRules, NotSent, UserInfo};
use tributary_authorization::Attributes;
use tributary_proxy::{Impersonation, InvalidImpersonation};

use super::caller_rights::CallerRights;
use super::remembered_actor::headers_of;

/// Why nothing is sent in another's name to a cluster that let the user be that one before it was lost.
const NOT_SAID_NOW: &str = "it has not said whether it still lets you act as another user; try again";

/// A request as a cluster is sent it.
pub struct SentRequest<'a> {
    /// The method.
    pub method: &'a Method,
    /// The path at the cluster.
    pub path: &'a str,
    /// The query; `None` where the path has it.
    pub query: Option<&'a str>,
}

impl SentRequest<'_> {
    /// The request as the cluster reads it, by its whole target: a path may come with its query, and is the cluster's
    /// own whatever it begins with.
    ///
    /// # Errors
    /// 400 where it cannot be read.
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
    /// As whom the caller acts in a cluster, for a request that is sent to it: nobody is sent whom the cluster does not
    /// let the caller be for just this.
    ///
    /// # Errors
    /// 403 that says why the cluster is not told; 503 where what it allows now is not known, which names the cluster
    /// where the caller was let be that one when it was last known. 404 where another cluster vouches for the caller:
    /// this one is not there then.
    pub fn identity(
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
        if self.actor.impersonated_user().is_none() {
            return Ok(told);
        }
        // Whether they may be another nobody looks at there: the cluster would take our word for a right that it has
        // taken away. What it said last shows what is held of it, and sends nothing.
        let (now, info) = (self.now_in(cluster), sent.info(cluster)?);
        let (fleet, request) = (self.mirror.compiled(), Attributes::from_request(&info));
        match now.there_for(&fleet, cluster, &request, || Some(true)) {
            Some(true) => Ok(told),
            // Others may let them: what each caller does without this cluster is theirs to say.
            Some(false) => Err(MemberRefusal::ForbidsActing(now.not_let(&fleet, [cluster], &request).status()).into()),
            None if self.there_for(&fleet, cluster, &request, || Some(true)) == Some(true) => {
                Err(self.not_said_now(cluster))
            }
            None => {
                let (user, name) = (GroupVersionResource::new("", "v1", "users"), self.acting_name().to_owned());
                Err(ClusterRefusal::rights_unknown(user, name).into())
            }
        }
    }

    /// The headers by which a cluster is told this of whoever acts: those of the connection's last request, where the
    /// same was told of whoever acted then.
    ///
    /// # Errors
    /// [`InvalidImpersonation`] for what no header says.
    pub fn headers(&self, told: UserInfo) -> Result<Impersonation, InvalidImpersonation> {
        match &self.remembered {
            Some(remembered) => remembered.headers(told),
            None => headers_of(&told),
        }
    }

    /// 503 of a cluster that let the caller be another when that was last known. Of one that is out of reach it is
    /// without the advice to come again in a second.
    fn not_said_now(&self, cluster: &ClusterName) -> Refusal {
        match self.mirror.cluster(cluster).and_then(|own| own.out_of_reach()) {
            Some(trouble) => MemberRefusal::Undecided { unknown: vec![format!("{trouble}: {NOT_SAID_NOW}")] }.into(),
            None => MemberRefusal::unavailable(cluster, NOT_SAID_NOW).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes below `/clusters/a` and begins with `/clusters/b` is no resource there.
    #[test]
    fn a_path_is_read_as_the_cluster_that_is_sent_it_reads_it() {
        let cluster = ClusterName::new("a").unwrap();
        for (path, query, expected) in [
            ("/clusters/b/api/v1/secrets", None, Some("/clusters/b/api/v1/secrets")),
            ("/clusters/b/api/v1/secrets", Some("watch=1"), Some("/clusters/b/api/v1/secrets")),
            ("/clusters/b", None, Some("/clusters/b")),
            ("/api/v1/secrets?watch=1", None, None),
        ] {
            let info = SentRequest { method: &Method::GET, path, query }.info(&cluster).unwrap();
            let told = match Attributes::from_request(&info) {
                Attributes::NonResource { verb, path } => Some((verb.to_owned(), path.into_owned())),
                Attributes::Resource(_) => None,
            };
            assert_eq!(told, expected.map(|path| ("get".to_owned(), path.to_owned())), "{path}");
        }
    }
}
