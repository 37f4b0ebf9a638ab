//! Probes of each endpoint of a cluster: periodic requests of `/readyz`. Probes detect silence and recovery before a
//! client's request does. Path, times and thresholds are settings of the cluster (`health/settings.rs`); this text
//! describes the defaults.
//!
//! An endpoint counts as silent only if a probe gets no response, and no other bytes (a different response, or data of
//! a stream) came from the endpoint during the probe. So an endpoint behind a slow network, or a busy server, does not
//! count as silent. An endpoint that answers that it is not ready gets requests only if no better endpoint is left. If
//! no endpoint is ready, cached objects count as fresh only while events arrive. `/readyz` waits for etcd, if necessary
//! for seconds. So after some time the probe also requests `/livez/ping`, a check without dependencies. HTTP/2 pings
//! and new connections do not count, because a load balancer answers both even if its backend is dead. Responses that a
//! load balancer may have sent do not count either ([`Responder`]).
//!
//! A client's error need not be the endpoint's fault. One webhook or one aggregated server makes a healthy
//! kube-apiserver answer 500. So if the cluster has several endpoints, and one of them causes errors, or broken or
//! missing responses, Tributary requests an object that every cluster has from this endpoint. The request passes
//! authentication, authorization and storage. If this request gets an error or a broken response, the endpoint is
//! ejected. A 403 counts as success. If it gets no response, the probes decide.
//!
//! Endpoints for users' own tokens are probed without credentials, and a 401 or 403 counts as success.
//!
//! ```text
//! frozen             next probe          no response: silent
//!   │◀── up to 5 s ───▶│◀────── 4 s ─────▶│  its streams are cut, its collections are stale
//! ```

use std::fmt;
use std::sync::{Arc, Weak};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::{StatusCode, Uri};
use rand::Rng;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout, timeout_at};

use tributary_apimachinery::or_pending;

use crate::credentials::CurrentCredentials;
use crate::credentials::user::MemberUser;
use crate::endpoints::endpoint::{Endpoint, is_suspicious};
use crate::forward::own_request::{OwnResponse, send_to_endpoint};
use crate::health::reachability::ReachabilityState;
use crate::health::settings::{ANSWER_WITHIN, INTERVAL, Probe, Streak};

use crate::error::ForwardError;
use crate::health::responder::Responder;
use crate::health::state::Input;
use crate::member::ClientInner;
use crate::tick::nearest_tick;

/// Path of a kube-apiserver check that depends on no other component, such as etcd.
const PING: &str = "/livez/ping";

/// Object that Tributary requests to check a suspected endpoint. Every cluster has this object.
const OBJECT: &str = "/api/v1/namespaces/default";

/// Minimal interval of requests for the object, also while the endpoint is ejected. 1 s: a client that causes errors
/// costs the endpoint one small request per second.
const OBJECT_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of probes while an endpoint is unreachable or not ready. 1 s: its objects are fresh 5 s after its recovery,
/// and a refused connection costs little.
const INTERVAL_UNTIL_WELL: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeVerdict {
    /// The endpoint answered the probe. After a 403, `ready` is true.
    Answered { ready: bool },
    /// The endpoint rejects Tributary's credentials. Discovery reports this problem.
    Rejects,
    /// A server in front of the endpoint answered with this status. The endpoint itself sent no bytes.
    Absent(StatusCode),
    /// The endpoint did not answer this probe, but sent other bytes.
    Slow,
    /// The endpoint sent no bytes during the probe.
    Silent,
}

impl ProbeVerdict {
    fn is_silent(self) -> bool {
        matches!(self, Self::Absent(_) | Self::Silent)
    }

    /// Returns whether the result is a success or a failure for the thresholds. `None` if the result is neither.
    fn is_success(self) -> Option<bool> {
        match self {
            Self::Answered { ready } => Some(ready),
            Self::Absent(_) | Self::Silent => Some(false),
            Self::Rejects | Self::Slow => None,
        }
    }
}

/// Probes each endpoint while the future is polled. Includes new endpoints at once, and stops for removed endpoints.
pub(crate) async fn run(member: Arc<ClientInner>) {
    let mut changes = member.endpoints.changes();
    let mut followed: Vec<Weak<Endpoint>> = Vec::new();
    let mut asking = FuturesUnordered::new();
    loop {
        followed.retain(|before| before.strong_count() > 0);
        for endpoint in member.endpoints.all().iter() {
            if !followed.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(endpoint))) {
                followed.push(Arc::downgrade(endpoint));
                asking.push(follow_endpoint(Arc::clone(&member), Arc::clone(endpoint)));
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            Some(()) = asking.next() => {}
        }
    }
}

async fn follow_endpoint(member: Arc<ClientInner>, endpoint: Arc<Endpoint>) {
    let removed = endpoint.removed.clone();
    let are_several = member.endpoints.has_endpoint_list();
    let suspected = are_several.then(|| follow_suspicion(Arc::clone(&member), Arc::clone(&endpoint)));
    tokio::select! {
        () = follow(Arc::clone(&member), Arc::clone(&endpoint)) => {}
        () = or_pending(suspected) => {}
        () = removed.cancelled() => {}
    }
}

async fn follow(member: Arc<ClientInner>, endpoint: Arc<Endpoint>) {
    let probe = &member.tuning.probe;
    let mut reachability = endpoint.observer.subscribe();
    let mut last = None;
    let mut streak = Streak::default();
    let mut was_lost = false;
    // The first probe is at a random time, so that clusters and replicas are not probed simultaneously.
    let first = INTERVAL.min(probe.interval).mul_f64(rand::rng().random());
    sleep_until(nearest_tick(Instant::now() + first)).await;
    loop {
        let is_lost = endpoint.observer.is_unreachable();
        if is_lost && !was_lost {
            // Results from before the endpoint became unreachable do not contribute to the thresholds.
            streak.end();
        }
        was_lost = is_lost;
        let sent_at = Instant::now();
        match check(&member, &endpoint).await {
            Some(verdict) => {
                if verdict.is_success().is_none_or(|is_success| streak.record_and_check(is_success, probe)) {
                    record_verdict(&member, &endpoint, verdict, last);
                    last = Some(verdict);
                }
            }
            None => streak.end(),
        }
        // A client's request may detect that the endpoint is unreachable before the next probe does, and the next probe
        // then follows sooner.
        let lost = reachability.wait_for(|known| matches!(known.state, ReachabilityState::Unreachable { .. }));
        let is_not_ready = !endpoint.observer.is_ready();
        if is_not_ready || timeout_at(nearest_tick(sent_at + probe.interval), lost).await.is_ok() {
            sleep(INTERVAL_UNTIL_WELL).await;
        }
    }
}

/// Requests `OBJECT` from a suspected endpoint, until the endpoint is healthy again.
async fn follow_suspicion(member: Arc<ClientInner>, endpoint: Arc<Endpoint>) {
    loop {
        if !endpoint.observer.machine().is_faulty() {
            endpoint.suspected().await;
        }
        let sent_at = Instant::now();
        if let Ok(Some(judgment)) = timeout(ANSWER_WITHIN, request_object(&member, &endpoint)).await {
            endpoint.record_own_result(&member.name, judgment.err().as_deref());
        }
        sleep_until(sent_at + OBJECT_INTERVAL).await;
    }
}

/// Requests [`OBJECT`] from an endpoint. Returns a failure of the endpoint as an error; `None` without a response.
async fn request_object(member: &Arc<ClientInner>, endpoint: &Arc<Endpoint>) -> Option<Result<(), String>> {
    let user = member.user.load_full();
    let credentials = member.credentials(&user).await.ok()?;
    Some(match send_to_endpoint(member, endpoint, &credentials, &user, &Uri::from_static(OBJECT)).await {
        Ok(OwnResponse { status, .. }) if is_suspicious(status) => Err(format!("{OBJECT} is answered {status}")),
        Ok(_) => Ok(()),
        // No client's request uses this connection, so a client cannot have caused the failure. The endpoint is at
        // fault.
        Err(error @ ForwardError::Send { .. }) => {
            endpoint.observer.apply(Input::Failure);
            Err(format!("{OBJECT}: {}", error.at_endpoint()))
        }
        Err(_) => return None,
    })
}

/// Sends one probe. `None` if the probe could not be sent; the reason is recorded.
async fn check(member: &Arc<ClientInner>, endpoint: &Arc<Endpoint>) -> Option<ProbeVerdict> {
    let user = member.user.load_full();
    // The time limit does not include the wait for credentials, because a credential plugin may take seconds.
    let credentials = match member.credentials(&user).await {
        Ok(credentials) => credentials,
        Err(error) => {
            endpoint.observer.record_failure(&error);
            return None;
        }
    };
    let probe = &member.tuning.probe;
    let sent_at = Instant::now();
    match timeout(probe.answer_within, request_both_paths(member, endpoint, &credentials, &user)).await {
        Ok(Ok(ProbeVerdict::Absent(status))) => {
            // Waits until the end of the time limit, because other bytes may still arrive. An endpoint that is already
            // unreachable gets no such wait.
            if !endpoint.observer.is_unreachable() {
                sleep_until(sent_at + probe.answer_within).await;
            }
            match slow_if_alive(sent_at, endpoint.observer.last_data_at(), ProbeVerdict::Absent(status)) {
                // The endpoint is alive, but its response to the configured path is not 200.
                ProbeVerdict::Slow if probe.is_strict() => Some(ProbeVerdict::Answered { ready: false }),
                verdict => Some(verdict),
            }
        }
        Ok(Ok(verdict)) => Some(verdict),
        Ok(Err(error)) => {
            endpoint.observer.record_failure(&error);
            None
        }
        Err(_) => Some(slow_if_alive(sent_at, endpoint.observer.last_data_at(), ProbeVerdict::Silent)),
    }
}

/// Returns the result of a probe from its status code. `is_nobody` is true for a probe without credentials.
fn classify_status(status: StatusCode, is_nobody: bool, probe: &Probe) -> ProbeVerdict {
    if is_nobody && matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return ProbeVerdict::Answered { ready: true };
    }
    match Responder::from_status(status) {
        Responder::Rejecting => ProbeVerdict::Rejects,
        Responder::Intermediary => ProbeVerdict::Absent(status),
        Responder::Member => ProbeVerdict::Answered { ready: probe.is_ready(status) },
    }
}

/// Returns the result of a probe without a response: `verdict`, or `Slow` if other bytes arrived since the probe.
fn slow_if_alive(sent_at: Instant, last_data_at: Option<Instant>, verdict: ProbeVerdict) -> ProbeVerdict {
    if last_data_at.is_some_and(|last_data_at| last_data_at >= sent_at) { ProbeVerdict::Slow } else { verdict }
}

/// Records the result of a probe. Closes the connections of an endpoint that has just become silent.
fn record_verdict(member: &ClientInner, endpoint: &Endpoint, verdict: ProbeVerdict, last: Option<ProbeVerdict>) {
    match verdict {
        // The probe was sent without credentials, so its response does not prove that the endpoint accepts Tributary's
        // credentials.
        ProbeVerdict::Answered { .. } if member.observer.is_rejecting() && last != Some(ProbeVerdict::Rejects) => {
            endpoint.record_data();
        }
        ProbeVerdict::Answered { ready } => {
            endpoint.record_response();
            endpoint.ready(ready);
            member.endpoints.record_readiness(&member.observer);
        }
        ProbeVerdict::Rejects => endpoint.record_data(),
        ProbeVerdict::Slow => {}
        ProbeVerdict::Absent(status) => {
            let path = &member.tuning.probe.path;
            record_silence(
                member,
                endpoint,
                last,
                format_args!("{path} is answered {status}, and no other answers arrive"),
            );
        }
        ProbeVerdict::Silent => {
            let Probe { path, answer_within, .. } = &member.tuning.probe;
            record_silence(
                member,
                endpoint,
                last,
                format_args!("no answer to {path} within {} s", answer_within.as_secs()),
            );
        }
    }
}

fn record_silence(member: &ClientInner, endpoint: &Endpoint, last: Option<ProbeVerdict>, how: fmt::Arguments<'_>) {
    let (cluster, address) = (&member.name, &endpoint.target.address);
    // The state changes before the connections are closed, so that aborted requests report this reason.
    endpoint.observer.unreachable(format!("cluster {cluster} at {address} is silent: {how}"));
    endpoint.observer.apply(Input::Failure);
    // Only the first of consecutive silent probes closes the connections. New connections must show whether the
    // endpoint has recovered.
    if !last.is_some_and(ProbeVerdict::is_silent) {
        endpoint.pool.cut();
    }
}

/// Requests the readiness path, and after some time `/livez/ping` in addition.
async fn request_both_paths(
    member: &Arc<ClientInner>,
    endpoint: &Arc<Endpoint>,
    credentials: &Arc<CurrentCredentials>,
    user: &MemberUser,
) -> Result<ProbeVerdict, ForwardError> {
    let probe = &member.tuning.probe;
    let ready = async {
        let OwnResponse { status, took } = send_to_endpoint(member, endpoint, credentials, user, &probe.uri()).await?;
        endpoint.record_latency(took);
        Ok(classify_status(status, member.passes_tokens, probe))
    };
    let ping = async {
        sleep(probe.ping_after()).await;
        let answered = send_to_endpoint(member, endpoint, credentials, user, &Uri::from_static(PING)).await;
        match answered.map(|answered| classify_status(answered.status, member.passes_tokens, probe)) {
            Ok(ProbeVerdict::Answered { .. }) => ProbeVerdict::Answered { ready: false },
            Ok(verdict) => verdict,
            // The readiness request will fail for the same reason, and reports the failure.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        ready = ready => ready,
        there = ping => Ok(there),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_that_sends_any_bytes_is_reported_slow_and_not_silent() {
        let sent_at = Instant::now();
        let later = sent_at + Duration::from_secs(1);
        for silent in [ProbeVerdict::Silent, ProbeVerdict::Absent(StatusCode::BAD_GATEWAY)] {
            assert_eq!(slow_if_alive(later, None, silent), silent);
            assert_eq!(slow_if_alive(later, Some(sent_at), silent), silent);
            assert_eq!(slow_if_alive(sent_at, Some(later), silent), ProbeVerdict::Slow);
        }
        for (status, verdict) in [
            (200, ProbeVerdict::Answered { ready: true }),
            (403, ProbeVerdict::Answered { ready: true }),
            (404, ProbeVerdict::Answered { ready: true }),
            (500, ProbeVerdict::Answered { ready: false }),
            (502, ProbeVerdict::Absent(StatusCode::BAD_GATEWAY)),
            (503, ProbeVerdict::Absent(StatusCode::SERVICE_UNAVAILABLE)),
            (504, ProbeVerdict::Absent(StatusCode::GATEWAY_TIMEOUT)),
            (401, ProbeVerdict::Rejects),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(classify_status(status, false, &Probe::default()), verdict, "{status}");
            let is_refusal = matches!(status.as_u16(), 401 | 403);
            let of_nobody = if is_refusal { ProbeVerdict::Answered { ready: true } } else { verdict };
            assert_eq!(classify_status(status, true, &Probe::default()), of_nobody, "{status}");
        }
    }
}
