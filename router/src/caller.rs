//! The sender of a request.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, sleep_until};
use tributary_answers::refusal::{Refusal, RequestRefusal};
use tributary_answers::stream_over::StreamOver;
use tributary_authentication::UserInfo;
use tributary_fleet::topology::ClusterSetup;
use tributary_flow_control::AdmittedRequest;
use tributary_proxy::{ClientUpgrade, ClusterClient, GivenIdentity, OwnToken, Peer, RequestIdentity};
use tributary_rights::AuthenticatedUntil;
use tributary_rights::{Actor, CallerRights, RightsMirror, SentRequest, User, bounded, given_user};
use tributary_sharing::flow::holder::Holder;

use tributary_apimachinery::{RequestInfo, Verb, or_never};

use crate::awaited::Awaited;
use crate::dispatch::{DeniedClusters, Dispatched, PolicySender, PolicyUser};
use crate::own_credential::OwnCredential;
use crate::request_context::RequestContext;
use crate::request_trace::{BegunStage, RequestTrace};

/// The sender of a request, and the source of the identity that members see. Made once for each request, before its
/// other stages. Each function that sends a client's request to a member takes the caller as an argument, so that no
/// request is sent under another identity by mistake.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The user that the client's own `Impersonate-*` headers name.
    given: Option<GivenIdentity>,
    /// The rights of the user, in shared mode. In personal mode clusters see the kubeconfig's user, or the user that
    /// the client impersonates.
    rights: Option<CallerRights>,
    /// The token of the user, for the cluster that knows it.
    own: Option<OwnCredential>,
    /// The end of the credentials; `None` for credentials without an end.
    authenticated_until: Option<AuthenticatedUntil>,
    /// The connection of the request.
    pub(crate) connection: Option<Peer>,
    /// The holder whose share of the limits the request takes.
    pub(crate) holder: Holder,
    /// The clusters that were asked for this request and have not answered yet.
    pub(crate) awaited: Awaited,
    /// The decision of the dispatch policies; `None` for a short request without policies.
    pub(crate) dispatched: Option<Arc<Dispatched>>,
    /// The request's place in its flow-control schema, once the request is admitted. A member may work on the request
    /// after its sender has gone, and the place is held until then. Empty without a schema.
    pub(crate) admitted: OnceLock<Arc<AdmittedRequest>>,
    /// The facts for logs, metrics and traces; `None` for questions of this process itself.
    pub(crate) trace: Option<RequestTrace>,
    /// The client's side of an upgrade.
    pub(crate) upgrade: Option<ClientUpgrade>,
    /// Set once the request may have changed a cluster: a part of it was sent there.
    written: OnceLock<()>,
    /// Set once the answer lacks objects because rights are unknown.
    lacks_rights: OnceLock<()>,
}

/// A key of a caller's identity. Members give callers with the same key the same answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallerKey {
    /// The owner of a personal endpoint, with their `Impersonate-*` headers.
    Owner(Box<[(HeaderName, HeaderValue)]>),
    /// A user in shared mode.
    User(Arc<Actor>),
}

async fn gone(rights: Option<CallerRights>) -> StreamOver {
    match rights {
        Some(rights) => rights.gone().await,
        None => std::future::pending().await,
    }
}

/// Ends at the end of a stream's time; never without such an end.
pub(crate) async fn passed(end: Option<(Instant, StreamOver)>) -> StreamOver {
    let passed = async |(at, why): (Instant, StreamOver)| {
        sleep_until(at).await;
        why
    };
    or_never(end.map(passed)).await
}

impl Caller {
    /// The sender of a request, by its headers and the server's stages. `mirror` has the rights of users in members, in
    /// shared mode.
    ///
    /// # Errors
    /// 400 for `Impersonate-*` headers that a member could take for somebody else's, or for nobody's; 431 for more of
    /// them than clusters are asked about; 403 for a user who is denied everything.
    pub(crate) fn from_request(
        headers: &HeaderMap,
        context: &RequestContext,
        mirror: Option<&Arc<RightsMirror>>,
    ) -> Result<Self, Refusal> {
        let given = GivenIdentity::from_headers(headers).map_err(RequestRefusal::Impersonation)?;
        let RequestContext { arrival, sender } = context;
        let user = &sender.user;
        let own = mirror.and_then(|_| sender.own_credential.clone());
        let (rights, holder) = match mirror {
            None => (None, Holder::connection(arrival.peer)),
            Some(mirror) => {
                if mirror.denies(&user.info.username) {
                    return Err(RequestRefusal::Over(StreamOver::Denied).into());
                }
                let given = given.as_ref().map(given_user).transpose().map_err(RequestRefusal::Impersonation)?;
                given.as_ref().map_or(Ok(()), bounded)?;
                let actor = match (given, &arrival.remembered) {
                    (None, Some(remembered)) => remembered.actor_for(&user.info, &user.authority),
                    (given, _) => Arc::new(Actor::new(user.info.clone(), user.authority.clone(), given)),
                };
                let rights = CallerRights::new(mirror, actor).with_still_known(sender.still_known.clone());
                let rights = rights.remembered_by(arrival.remembered.clone());
                (Some(rights), Holder::of_user(&user.authority, &user.info.username))
            }
        };
        Ok(Self {
            given,
            rights,
            own,
            authenticated_until: sender.until,
            connection: arrival.peer,
            holder,
            awaited: Awaited::default(),
            dispatched: None,
            admitted: OnceLock::new(),
            trace: Some(arrival.trace.clone()),
            upgrade: arrival.upgrade.clone(),
            written: OnceLock::new(),
            lacks_rights: OnceLock::new(),
        })
    }

    /// The same caller, for a question that several requests share. The question may last longer than the request that
    /// asked first, so it holds no place in a flow-control schema.
    pub(crate) fn of_shared_question(&self) -> Self {
        Self { admitted: OnceLock::new(), upgrade: None, ..self.clone() }
    }

    /// A caller with this name, for tests.
    #[cfg(test)]
    pub(crate) fn named(user: &str, mirror: Option<&Arc<RightsMirror>>) -> Self {
        let context = RequestContext::for_user(&User::named("test", user), &http::Request::new(()));
        Self::from_request(&HeaderMap::new(), &context, mirror).unwrap()
    }

    /// Notes that the answer lacks objects because rights are unknown.
    pub(crate) fn note_unknown_rights(&self) {
        let _is_set = self.lacks_rights.set(());
    }

    /// Returns whether the answer lacks objects because rights are unknown.
    pub(crate) fn lacks_rights(&self) -> bool {
        self.lacks_rights.get().is_some()
    }

    /// The same caller, but the owner of a personal endpoint without impersonation. For questions whose answers only
    /// choose among clusters, because the owner may know all of them. One of many users stays the same.
    pub(crate) fn of_owner(&self) -> Self {
        match self.rights {
            None => Self { given: None, ..self.clone() },
            Some(_) => self.clone(),
        }
    }

    /// The name of the impersonated user. `None` for the owner of a personal endpoint without impersonation: each
    /// cluster has another name for the owner's credentials.
    pub(crate) fn acting_name(&self) -> Option<String> {
        match &self.rights {
            None => Some(given_user(self.given.as_ref()?).ok()?.username),
            Some(rights) => Some(rights.acting_name().to_owned()),
        }
    }

    /// The holder whose writes this caller's reads wait for: the same user in shared mode, all clients of the process
    /// in personal mode.
    pub(crate) fn writer(&self) -> Holder {
        match self.rights {
            None => Holder::Unknown,
            Some(_) => self.holder,
        }
    }

    /// The rights of the user in shared mode; `None` in personal mode.
    pub(crate) fn rights(&self) -> Option<&CallerRights> {
        self.rights.as_ref()
    }

    /// The name and the groups that the caller acts under: those of the impersonated user, or the user's own. Groups
    /// that every user has are included.
    ///
    /// # Errors
    /// 400 for headers that are no text.
    pub(crate) fn acts_as(&self, user: &User) -> Result<(String, Vec<String>), Refusal> {
        let of = |info: UserInfo| {
            let UserInfo { username, groups, .. } = info.impersonated();
            (username, groups)
        };
        Ok(match (&self.rights, &self.given) {
            (Some(rights), _) => rights.acts_as(),
            (None, None) => of(user.info.clone()),
            (None, Some(given)) => of(given_user(given).map_err(RequestRefusal::Impersonation)?),
        })
    }

    /// The sender of a request, in the form that dispatch policies match.
    ///
    /// # Errors
    /// 400 for headers that are no text.
    pub(crate) fn sender(&self, user: &User, info: &RequestInfo) -> Result<PolicySender, Refusal> {
        match &self.rights {
            None => {
                let (name, groups) = self.acts_as(user)?;
                Ok(PolicySender::alone(PolicyUser { name, groups }))
            }
            Some(rights) => Ok(PolicySender::of_user(rights, info.cluster.as_ref())),
        }
    }

    /// The length of the texts that identify the sender and the impersonated user, in bytes. Zero in personal mode,
    /// where no text is counted.
    pub(crate) fn text_bytes(&self) -> usize {
        self.rights().map_or(0, |rights| rights.actor().bytes())
    }

    /// Begins a stage of the request. The stage ends when the returned guard is dropped.
    pub(crate) fn stage(&self, name: &'static str) -> BegunStage {
        self.trace.as_ref().map(|trace| trace.stage(name)).unwrap_or_default()
    }

    /// The clusters whose policies refuse the request; `None` without such clusters.
    pub(crate) fn denied_clusters(&self) -> Option<&DeniedClusters> {
        self.dispatched.as_ref()?.denied_clusters()
    }

    /// The end of a long-running request that begins now, and its cause; `None` without an end.
    pub(crate) fn stream_end(&self) -> Option<(Instant, StreamOver)> {
        let expiry = self.authenticated_until.map(|until| (until.instant(), StreamOver::Expired));
        let age = self.rights().and_then(CallerRights::max_stream_age);
        let age = age.and_then(|age| Some((Instant::now().checked_add(age)?, StreamOver::Age)));
        expiry.into_iter().chain(age).min_by_key(|(at, _)| *at)
    }

    /// Ends once the caller must not get more of a stream: the user is denied, is no longer authenticated, or the
    /// stream's time is over. `None` if none of these can happen. Cancelling is safe.
    pub(crate) fn over(&self) -> Option<impl Future<Output = StreamOver> + Send + use<>> {
        let (end, rights) = (self.stream_end(), self.rights().cloned());
        (end.is_some() || rights.is_some()).then_some(async move {
            tokio::select! {
                why = passed(end) => why,
                why = gone(rights) => why,
            }
        })
    }

    /// The answer to the caller's request, unless too many questions about rights are open to ask a cluster for the
    /// caller's. An answer without these rights would show less than it could. The cluster with unknown rights got no
    /// request of the caller. If a change was sent to another cluster, the answer tells its outcome. Cancelling is as
    /// safe as it is for `answer`.
    ///
    /// # Errors
    /// 429; those of the answer.
    pub(crate) async fn unless_crowded<T>(
        &self,
        verb: Verb,
        mut answer: Pin<&mut impl Future<Output = Result<T, Refusal>>>,
    ) -> Result<T, Refusal> {
        let crowded = || self.rights().and_then(CallerRights::crowded);
        let is_begun = || !verb.is_read() && self.written.get().is_some();
        let answer = poll_fn(|context| match crowded().filter(|_| !is_begun()) {
            Some(exceeded) => Poll::Ready(Err(exceeded.into())),
            None => answer.as_mut().poll(context),
        });
        answer.await
    }

    /// Checks that the caller may see a path that is no resource and describes all clusters at once. Such a path may be
    /// one part of an answer, so crowded questions about it do not refuse the whole request.
    ///
    /// # Errors
    /// 403; 429 if too many questions about rights are open.
    pub(crate) async fn may_visit(&self, path: &str) -> Result<(), Refusal> {
        let Some(rights) = self.rights().map(CallerRights::by_itself) else { return Ok(()) };
        match rights.settled_unless_crowded(|rights| rights.may_visit(path)).await? {
            true => Ok(()),
            false => Err(rights.forbids_visit(path.to_owned())),
        }
    }

    /// The identity under which a cluster sees the request `sent`. No other function decides the identity.
    ///
    /// # Errors
    /// Why the cluster must not get the request at all, in shared mode.
    pub(crate) async fn identity(
        &self,
        cluster: &ClusterSetup,
        sent: &SentRequest<'_>,
    ) -> Result<RequestIdentity, Refusal> {
        let identity = self.identity_in(cluster, sent).await?;
        if !sent.method.is_safe() {
            let _is_set = self.written.set(());
        }
        Ok(identity)
    }

    async fn identity_in(&self, cluster: &ClusterSetup, sent: &SentRequest<'_>) -> Result<RequestIdentity, Refusal> {
        let Some(rights) = &self.rights else {
            return Ok(self.given.clone().map_or(RequestIdentity::Member, RequestIdentity::AsGiven));
        };
        if let Some(own) = self.own_token(cluster) {
            return Ok(RequestIdentity::Own(own));
        }
        let identity = |rights: &CallerRights| rights.identity(&cluster.name, &cluster.impersonation, sent);
        let told = rights.settled_unless_crowded(identity).await??;
        let headers = rights.headers(told).map_err(RequestRefusal::NotExpressible)?;
        Ok(RequestIdentity::Impersonate(headers))
    }

    /// The user's own token, if this cluster is to authenticate it.
    fn own_token(&self, cluster: &ClusterSetup) -> Option<OwnToken> {
        let own = self.own.as_ref()?;
        let passes = cluster.client.as_ref().is_ok_and(ClusterClient::passes_tokens);
        passes.then(|| own.token_for(&cluster.name, self.given.clone()))?
    }

    /// Returns whether the cluster authenticates the user by their own token, so that Tributary impersonates no user
    /// there.
    pub(crate) fn comes_with_own_token(&self, cluster: &ClusterSetup) -> bool {
        self.own_token(cluster).is_some()
    }

    /// Returns whether the owner of a personal endpoint impersonates another user. Memory holds the objects that our
    /// own rights can see, so it cannot answer such a user. In shared mode it knows the rights of each user.
    pub(crate) fn is_another(&self) -> bool {
        self.rights.is_none() && self.given.is_some()
    }

    /// A key of the caller's identity.
    pub(crate) fn key(&self) -> CallerKey {
        let headers = match (&self.rights, &self.given) {
            (Some(rights), _) => return CallerKey::User(Arc::clone(rights.actor())),
            (None, None) => return CallerKey::Owner(Box::default()),
            (None, Some(given)) => given.headers(),
        };
        CallerKey::Owner(headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::{Router, RouterConfig, SharedMode};
    use tributary_sharing::flow::fair_semaphore::{FairSemaphore, ShareMetrics};

    /// An answer after a request was sent never claims that no request was sent.
    #[tokio::test]
    async fn begun_deletion_is_answered_although_another_cluster_could_not_be_asked() {
        let router = Router::new(RouterConfig { shared: Some(SharedMode::default()), ..RouterConfig::default() });
        let share = FairSemaphore::new("questions", 2, ShareMetrics::default());
        let exceeded = share.acquire(Holder::Unknown, 3).unwrap_err();
        for (verb, is_written, is_answered) in [
            (Verb::List, false, false),
            (Verb::List, true, false),
            (Verb::DeleteCollection, false, false),
            (Verb::DeleteCollection, true, true),
        ] {
            let caller = Caller::named("ann", router.rights());
            caller.rights().unwrap().crowd(exceeded);
            if is_written {
                caller.written.set(()).unwrap();
            }
            let answer = caller.unless_crowded(verb, pin!(async { Ok::<(), Refusal>(()) })).await;
            assert_eq!(answer.is_ok(), is_answered, "{verb} {is_written}");
        }
    }
}
