//! Admission of a request, by these checks in this order.
//!
//! ```text
//! loop      no chain of Tributaries has returned the request                   508
//! bounds    names and parameters are within the size limits                    400
//! caller    the identity is unambiguous, and the user is not denied            400, 403, 431
//! permits   a permit of requests in flight is free; in shared mode also one    429
//!           of long-running requests, if the request is or may become one
//! ```

use http::{HeaderMap, Response};
use tributary_answers::refusal::{Refusal, RequestRefusal};
use tributary_apimachinery::permit::TunnelPermits;
use tributary_apimachinery::{RequestInfo, ResourceRequest};
use tributary_fleet::foreign_member::ForeignMembers;
use tributary_proxy::check_request_loop;
use tributary_sharing::body::Body;
use tributary_sharing::flow::fair_semaphore::FairPermit;
use tributary_sharing::flow::long_running::LongRunningPermit;
use tributary_sharing::limits::{NAME_BYTES, QUERY_PARAMETERS};

use crate::caller::Caller;
use crate::received::ReceivedRequest;
use crate::request_context::RequestContext;
use crate::{Router, health};

pub(crate) struct Admitted {
    pub(crate) caller: Caller,
    pub(crate) permit: AdmissionPermit,
}

/// Permits that a request has got on admission. A health check needs no permits, so that a busy process still answers.
#[derive(Default)]
pub(crate) struct AdmissionPermit {
    /// Permit of requests in flight, which is released when the answer begins; `None` for a long-running request.
    #[expect(dead_code, reason = "it is dropped, never read")]
    in_flight: Option<FairPermit>,
    /// Permit of long-running requests, which is released when the request ends. For long-running requests, and for
    /// requests that may switch protocols. `None` in personal mode.
    long_running: Option<LongRunningPermit>,
}

/// Admits a request.
///
/// # Errors
/// 400, 403, 429, 431 and 508, as in the table at the head of this file. 404 or 500 if a foreign system no longer has
/// the name for the cluster.
pub(crate) fn admit(
    router: &Router,
    received: ReceivedRequest<'_>,
    headers: &HeaderMap,
    context: &RequestContext,
    members: &ForeignMembers,
) -> Result<Admitted, Refusal> {
    let ReceivedRequest { info, query, may_switch, .. } = received;
    check_request_loop(headers).map_err(RequestRefusal::Loop)?;
    bounded(info, query)?;
    let mut caller = Caller::from_request(headers, context, router.rights())?;
    caller.enter_door(&context.arrival, received, members, || router.foreign_members())?;
    if health::is_check(info) {
        return Ok(Admitted { caller, permit: AdmissionPermit::default() });
    }
    let is_long_running = info.class().is_long_running();
    let shares = router.long_running().filter(|_| is_long_running || may_switch);
    let text = info.path.len() + query.map_or(0, str::len) + caller.text_bytes();
    let permit = AdmissionPermit {
        in_flight: (!is_long_running).then(|| router.requests().acquire(caller.share_key, 1)).transpose()?,
        long_running: shares.map(|shares| shares.acquire(caller.share_key, may_switch, text)).transpose()?,
    };
    if let (true, Some(upgrade)) = (may_switch, &context.arrival.upgrade) {
        permit.attach_to_tunnel(&upgrade.permits);
    }
    Ok(Admitted { caller, permit })
}

impl AdmissionPermit {
    /// Attaches the permit of a long-running request to its tunnel, until the tunnel ends.
    pub(crate) fn attach_to_tunnel(&self, permits: &TunnelPermits) {
        if let Some(long_running) = &self.long_running {
            long_running.attach_to_tunnel(permits);
        }
    }

    /// Attaches the permit of a long-running request to the answer's body. Releases the permit of requests in flight.
    pub(crate) fn attach_to_body(self, answer: Response<Body>) -> Response<Body> {
        match self.long_running {
            Some(long_running) => long_running.attach_to_body(answer),
            None => answer,
        }
    }
}

/// Refuses names and queries that exceed the size limits. Requests to a cluster's own path are not limited here,
/// because the cluster or workload limits them itself.
///
/// # Errors
/// 400 with the limit.
fn bounded(info: &RequestInfo, query: Option<&str>) -> Result<(), RequestRefusal> {
    if info.cluster.is_some() {
        return Ok(());
    }
    let request = info.resource();
    for (what, text) in [
        ("name", request.and_then(|request| request.name.as_deref())),
        ("namespace", request.and_then(|request| request.namespace.as_deref())),
    ] {
        if text.is_some_and(|text| text.len() > NAME_BYTES) {
            return Err(RequestRefusal::TooLong { what, max: NAME_BYTES });
        }
    }
    let is_streamed = request.is_some_and(ResourceRequest::is_streamed);
    if !is_streamed && query.is_some_and(|query| query.split('&').count() > QUERY_PARAMETERS) {
        return Err(RequestRefusal::TooManyParameters { max: QUERY_PARAMETERS });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{Request, StatusCode};
    use tributary_apimachinery::{ClusterName, Door};
    use tributary_authentication::Authority;

    use super::*;
    use crate::{Limits, RouterConfig, SharedMode, User};
    use tributary_answers::negotiate::Preferences;
    use tributary_sharing::body;

    const CONSOLE: &str = "/clusters/a/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console";

    /// All ServiceAccounts of one member, and all of their tokens, share one part of each limit, so that they cannot
    /// exhaust the limit.
    #[tokio::test]
    async fn configured_user_is_admitted_despite_many_service_accounts_of_a_member() {
        let limits = Limits { requests_in_flight: 8, long_running_requests: 8, ..Limits::default() };
        let shared = Some(SharedMode::default());
        let router = Router::new(RouterConfig { shared, limits, ..RouterConfig::default() });
        let member = ClusterName::new("a").unwrap();
        let authority = Authority::Member(member);
        let account = |number: usize| {
            let named = User::named("test", &format!("system:serviceaccount:n:{number}"));
            User { authority: authority.clone(), ..named }
        };
        for query in [None, Some("watch=1")] {
            let info = RequestInfo::parse("GET", "/api/v1/pods", query).unwrap();
            let (headers, preferences) = (HeaderMap::new(), Preferences::from_headers(&HeaderMap::new(), None));
            let allowed_clusters_of = |user: &User| {
                let received = ReceivedRequest {
                    info: &info,
                    query,
                    is_head: false,
                    may_switch: false,
                    door: Door::Direct,
                    is_entry_path: false,
                    preferences: &preferences,
                };
                admit(
                    &router,
                    received,
                    &headers,
                    &RequestContext::for_user(user, &Request::new(())),
                    &ForeignMembers::default(),
                )
                .ok()
            };
            let accounts: Vec<_> = (0..12).filter_map(|number| allowed_clusters_of(&account(number))).collect();
            assert_eq!(accounts.len(), 3, "each alone would have one, and eight of them all: {query:?}");
            let ann = allowed_clusters_of(&User::named("test", "ann"));
            assert!(ann.is_some(), "{query:?}");
        }
    }

    /// An aggregated server may switch the connection of a request whose path is not long-running. The request is in
    /// flight until the switch, and long-running afterwards.
    #[tokio::test]
    async fn tunnel_keeps_its_request_permits_until_its_end() {
        let shared = Some(SharedMode::default());
        let router = Router::new(RouterConfig { shared, ..RouterConfig::default() });
        let shares = router.long_running().unwrap();
        let used_permits = || (router.requests().used(), shares.requests.used(), shares.upgrades.used());
        let user = User::named("test", "ann");
        for (path, may_switch, under_way, joined) in [
            (CONSOLE, true, (1, 1, 1), (0, 1, 1)),
            (CONSOLE, false, (1, 0, 0), (0, 0, 0)),
            ("/clusters/a/api/v1/namespaces/n/pods/p/exec", true, (0, 1, 1), (0, 1, 1)),
            ("/livez", true, (0, 0, 0), (0, 0, 0)),
        ] {
            let info = RequestInfo::parse("GET", path, None).unwrap();
            let (headers, preferences) = (HeaderMap::new(), Preferences::from_headers(&HeaderMap::new(), None));
            let (context, tunnel) = (RequestContext::for_user(&user, &Request::new(())), TunnelPermits::default());
            let received = ReceivedRequest {
                info: &info,
                query: None,
                is_head: false,
                may_switch,
                door: Door::Direct,
                is_entry_path: false,
                preferences: &preferences,
            };
            let permit = admit(&router, received, &headers, &context, &ForeignMembers::default()).ok().unwrap().permit;
            permit.attach_to_tunnel(&tunnel);
            assert_eq!(used_permits(), under_way, "{path}");
            let mut switched = Response::new(body::empty());
            *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let answer = permit.attach_to_body(switched);
            drop(answer);
            assert_eq!(used_permits(), joined, "{path} after the 101");
            drop(tunnel);
            assert_eq!(used_permits(), (0, 0, 0), "{path} once the tunnel has ended");
        }
    }
}
