//! Probes of each endpoint of a cluster: `/readyz` at intervals, so that silence and recovery are known before a client
//! meets them. Path, times and thresholds are settings of the cluster (`health/settings.rs`); the following describes
//! the defaults.
//!
//! A question without an answer means silence only if nothing else came from the endpoint meanwhile: a different
//! answer, or bytes of a stream. So a slow network or a busy server does not count as dead. An endpoint that answers
//! and is not ready gets requests only if no better one is left, and its collections count as fresh only after events.
//! `/readyz` waits for etcd, for seconds in trouble: after some time `/livez/ping` is asked as well, which waits for
//! nothing. HTTP/2 pings and new connections do not count, because a load balancer answers them for a server that is
//! gone. Nor do answers that may be its own ([`Speaker`]).
//!
//! A client's error need not be the endpoint's fault: one webhook, or one aggregated server, makes a sound
//! kube-apiserver answer 500. So after errors, broken or missing answers, one of several endpoints is asked for an
//! object that every cluster has, through authentication, authorization and storage. An error, or a broken answer,
//! ejects the endpoint. A 403 is an answer; without an answer the probes decide.
//!
//! Endpoints for users' own tokens are asked without credentials: a refusal is an answer.
//!
//! ```text
//! frozen            next question        no answer: silent
//!   │◀── up to 5 s ───▶│◀────── 4 s ─────▶│  its streams are cut, its collections are stale
//! ```

use std::fmt;
use std::sync::{Arc, Weak};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::{StatusCode, Uri};
use rand::Rng;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout, timeout_at};

use tributary_apimachinery::or_never;

use crate::credentials::Current;
use crate::credentials::user::MemberUser;
use crate::endpoints::endpoint::{Endpoint, is_suspicious};
use crate::forward::own_question::{QuestionAnswer, ask_endpoint};
use crate::health::reachability::ReachabilityState;
use crate::health::settings::{ANSWER_WITHIN, INTERVAL, Probe, Streak};

use crate::error::ForwardError;
use crate::health::speaker::Speaker;
use crate::health::state::Input;
use crate::member::ClientInner;
use crate::tick::nearest_tick;

/// Path that waits for nothing at the endpoint.
const PING: &str = "/livez/ping";

/// The object of our own question.
const OBJECT: &str = "/api/v1/namespaces/default";

/// From one question for the object to the next, however many errors clients get, and while the endpoint is ejected.
/// 1 s: a client that causes errors costs the endpoint one small request a second.
const OBJECT_INTERVAL: Duration = Duration::from_secs(1);

/// Interval while an endpoint is out of reach or not ready. 1 s: its objects are fresh 5 s after its recovery, and a
/// refused connection costs little.
const INTERVAL_UNTIL_WELL: Duration = Duration::from_secs(1);

/// Result of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeVerdict {
    /// The endpoint answered. A refusal of the question counts as ready.
    Answered { ready: bool },
    /// The endpoint does not accept the credentials, which discovery reports.
    Rejects,
    /// A server in front of the endpoint answered with this status, and the endpoint gave no sign of life.
    Absent(StatusCode),
    /// The endpoint did not answer this probe, but answers requests.
    Slow,
    /// The endpoint gave no sign of life.
    Silent,
}

impl ProbeVerdict {
    /// Whether the endpoint counts as silent.
    fn is_silent(self) -> bool {
        matches!(self, Self::Absent(_) | Self::Silent)
    }

    /// Success or failure for the thresholds; `None` if the result does not count.
    fn is_success(self) -> Option<bool> {
        match self {
            Self::Answered { ready } => Some(ready),
            Self::Absent(_) | Self::Silent => Some(false),
            Self::Rejects | Self::Slow => None,
        }
    }
}

/// Probes each endpoint while this is polled; new ones at once, and removed ones no more.
pub(crate) async fn run(member: Arc<ClientInner>) {
    let mut changes = member.endpoints.changes();
    let mut asked: Vec<Weak<Endpoint>> = Vec::new();
    let mut asking = FuturesUnordered::new();
    loop {
        asked.retain(|before| before.strong_count() > 0);
        for endpoint in member.endpoints.all().iter() {
            if !asked.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(endpoint))) {
                asked.push(Arc::downgrade(endpoint));
                asking.push(follow_endpoint(Arc::clone(&member), Arc::clone(endpoint)));
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            Some(()) = asking.next() => {}
        }
    }
}

/// Probes one endpoint while it is in the list.
async fn follow_endpoint(member: Arc<ClientInner>, endpoint: Arc<Endpoint>) {
    let gone = endpoint.gone.clone();
    let are_several = member.endpoints.are_of_a_list();
    let suspected = are_several.then(|| follow_suspicion(Arc::clone(&member), Arc::clone(&endpoint)));
    tokio::select! {
        () = follow(Arc::clone(&member), Arc::clone(&endpoint)) => {}
        () = or_never(suspected) => {}
        () = gone.cancelled() => {}
    }
}

/// Asks one endpoint again and again.
async fn follow(member: Arc<ClientInner>, endpoint: Arc<Endpoint>) {
    let probe = &member.tuning.probe;
    let mut reachability = endpoint.observer.subscribe();
    let mut last = None;
    let mut streak = Streak::default();
    let mut was_lost = false;
    // At a random time, so that clusters and replicas are not probed all at once.
    let first = INTERVAL.min(probe.interval).mul_f64(rand::rng().random());
    sleep_until(nearest_tick(Instant::now() + first)).await;
    loop {
        let is_lost = endpoint.observer.is_unreachable();
        if is_lost && !was_lost {
            // Earlier answers do not count any longer.
            streak.end();
        }
        was_lost = is_lost;
        let asked = Instant::now();
        match check(&member, &endpoint).await {
            Some(verdict) => {
                if verdict.is_success().is_none_or(|is_success| streak.believes(is_success, probe)) {
                    note_verdict(&member, &endpoint, verdict, last);
                    last = Some(verdict);
                }
            }
            None => streak.end(),
        }
        // A request may notice the loss meanwhile.
        let lost = reachability.wait_for(|known| matches!(known.state, ReachabilityState::Unreachable { .. }));
        let is_not_ready = !endpoint.observer.is_ready();
        if is_not_ready || timeout_at(nearest_tick(asked + probe.interval), lost).await.is_ok() {
            sleep(INTERVAL_UNTIL_WELL).await;
        }
    }
}

/// Asks one of several endpoints for the object while it is suspected, until it is healthy again.
async fn follow_suspicion(member: Arc<ClientInner>, endpoint: Arc<Endpoint>) {
    loop {
        if !endpoint.observer.machine().is_faulty() {
            endpoint.suspected().await;
        }
        let asked = Instant::now();
        if let Ok(Some(judgment)) = timeout(ANSWER_WITHIN, ask_for_object(&member, &endpoint)).await {
            endpoint.judged(&member.name, judgment.err().as_deref());
        }
        sleep_until(asked + OBJECT_INTERVAL).await;
    }
}

/// Asks for the object, and gives the fault in the answer as an error; `None` without an answer.
async fn ask_for_object(member: &Arc<ClientInner>, endpoint: &Arc<Endpoint>) -> Option<Result<(), String>> {
    let user = member.user.load_full();
    let credentials = member.credentials(&user).await.ok()?;
    Some(match ask_endpoint(member, endpoint, &credentials, &user, &Uri::from_static(OBJECT)).await {
        Ok(QuestionAnswer { status, .. }) if is_suspicious(status) => Err(format!("{OBJECT} is answered {status}")),
        Ok(_) => Ok(()),
        // No request of a client is on that connection.
        Err(error @ ForwardError::Send { .. }) => {
            endpoint.observer.apply(Input::Failure);
            Err(format!("{OBJECT}: {}", error.at_endpoint()))
        }
        Err(_) => return None,
    })
}

/// Asks once. `None` where the question could not be put, the reason of which is noted.
async fn check(member: &Arc<ClientInner>, endpoint: &Arc<Endpoint>) -> Option<ProbeVerdict> {
    let user = member.user.load_full();
    // Outside of the time limit: a credential plugin may take seconds.
    let credentials = match member.credentials(&user).await {
        Ok(credentials) => credentials,
        Err(error) => {
            endpoint.observer.failed(&error);
            return None;
        }
    };
    let probe = &member.tuning.probe;
    let asked = Instant::now();
    match timeout(probe.answer_within, ask_both(member, endpoint, &credentials, &user)).await {
        Ok(Ok(ProbeVerdict::Absent(status))) => {
            // An unreachable endpoint needs no further time.
            if !endpoint.observer.is_unreachable() {
                sleep_until(asked + probe.answer_within).await;
            }
            match unless_heard(asked, endpoint.observer.heard_at(), ProbeVerdict::Absent(status)) {
                // The endpoint is alive, and its answer to the configured path is not 200.
                ProbeVerdict::Slow if probe.is_strict() => Some(ProbeVerdict::Answered { ready: false }),
                verdict => Some(verdict),
            }
        }
        Ok(Ok(verdict)) => Some(verdict),
        Ok(Err(error)) => {
            endpoint.observer.failed(&error);
            None
        }
        Err(_) => Some(unless_heard(asked, endpoint.observer.heard_at(), ProbeVerdict::Silent)),
    }
}

/// Result by a status; `is_nobody` for a question without credentials, by design.
fn of_status(status: StatusCode, is_nobody: bool, probe: &Probe) -> ProbeVerdict {
    if is_nobody && matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return ProbeVerdict::Answered { ready: true };
    }
    match Speaker::from_status(status) {
        Speaker::Rejecting => ProbeVerdict::Rejects,
        Speaker::Intermediary => ProbeVerdict::Absent(status),
        Speaker::Member => ProbeVerdict::Answered { ready: probe.is_ready(status) },
    }
}

/// Result of a missing answer: this one, if there was no sign of life since the question.
fn unless_heard(asked: Instant, heard: Option<Instant>, verdict: ProbeVerdict) -> ProbeVerdict {
    if heard.is_some_and(|heard| heard >= asked) { ProbeVerdict::Slow } else { verdict }
}

/// Notes it, and cuts the connections of an endpoint that has just fallen silent.
fn note_verdict(member: &ClientInner, endpoint: &Endpoint, verdict: ProbeVerdict, last: Option<ProbeVerdict>) {
    match verdict {
        // A question that needs no credentials does not show that they are accepted.
        ProbeVerdict::Answered { .. } if member.observer.is_rejecting() && last != Some(ProbeVerdict::Rejects) => {
            endpoint.heard();
        }
        ProbeVerdict::Answered { ready } => {
            endpoint.note_answer();
            endpoint.ready(ready);
            member.endpoints.note_ready(&member.observer);
        }
        ProbeVerdict::Rejects => endpoint.heard(),
        ProbeVerdict::Slow => {}
        ProbeVerdict::Absent(status) => {
            let path = &member.tuning.probe.path;
            lose(member, endpoint, last, format_args!("{path} is answered {status}, and nothing else comes"));
        }
        ProbeVerdict::Silent => {
            let Probe { path, answer_within, .. } = &member.tuning.probe;
            lose(member, endpoint, last, format_args!("no answer to {path} within {} s", answer_within.as_secs()));
        }
    }
}

/// Notes that the endpoint is silent.
fn lose(member: &ClientInner, endpoint: &Endpoint, last: Option<ProbeVerdict>, how: fmt::Arguments<'_>) {
    let (cluster, address) = (&member.name, &endpoint.target.address);
    // The state changes before the cut, so that cut requests report this reason.
    endpoint.observer.unreachable(format!("cluster {cluster} at {address} is silent: {how}"));
    endpoint.observer.apply(Input::Failure);
    // Only once, because new connections have to show whether the endpoint is back.
    if !last.is_some_and(ProbeVerdict::is_silent) {
        endpoint.pool.cut();
    }
}

/// Asks the endpoint whether it is ready, and after some time whether it is alive.
async fn ask_both(
    member: &Arc<ClientInner>,
    endpoint: &Arc<Endpoint>,
    credentials: &Arc<Current>,
    user: &MemberUser,
) -> Result<ProbeVerdict, ForwardError> {
    let probe = &member.tuning.probe;
    let ready = async {
        let QuestionAnswer { status, took } = ask_endpoint(member, endpoint, credentials, user, &probe.uri()).await?;
        endpoint.answered_within(took);
        Ok(of_status(status, member.passes_tokens, probe))
    };
    let ping = async {
        sleep(probe.ping_after()).await;
        let answered = ask_endpoint(member, endpoint, credentials, user, &Uri::from_static(PING)).await;
        match answered.map(|answered| of_status(answered.status, member.passes_tokens, probe)) {
            Ok(ProbeVerdict::Answered { .. }) => ProbeVerdict::Answered { ready: false },
            Ok(verdict) => verdict,
            // The second question reports the fault.
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
    fn endpoint_is_silent_only_if_it_sends_nothing() {
        let asked = Instant::now();
        let later = asked + Duration::from_secs(1);
        for silent in [ProbeVerdict::Silent, ProbeVerdict::Absent(StatusCode::BAD_GATEWAY)] {
            assert_eq!(unless_heard(later, None, silent), silent);
            assert_eq!(unless_heard(later, Some(asked), silent), silent);
            assert_eq!(unless_heard(asked, Some(later), silent), ProbeVerdict::Slow);
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
            assert_eq!(of_status(status, false, &Probe::default()), verdict, "{status}");
            let is_refusal = matches!(status.as_u16(), 401 | 403);
            let of_nobody = if is_refusal { ProbeVerdict::Answered { ready: true } } else { verdict };
            assert_eq!(of_status(status, true, &Probe::default()), of_nobody, "{status}");
        }
    }
}
