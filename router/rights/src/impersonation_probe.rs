//! Detection of a cluster's impersonation filter: at each endpoint, each minute, and after new connections.
//!
//! Neither the server version nor discovery shows the filter, because an administrator can switch the feature off or
//! emulate an older version. Reading the metrics of a cluster needs additional rights. But a request with a uid and
//! without a user name shows the filter: each filter refuses the request before any check of rights, with a different
//! text. Every unexpected answer is taken as a sign of the older filter, which allows less.
//! (docs/decisions/0054-detection-of-constrained-impersonation.md)

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{Request, StatusCode, header};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};
use tributary_apimachinery::rewrite;
use tributary_fleet::topology::Cluster;
use tributary_proxy::{ClusterClient, nearest_tick};
use tributary_sharing::body;

use super::impersonation::ImpersonationFilter;
use super::rounds::{CONNECTIONS_INTERVAL, INTERVAL, UNANSWERED_MAX, well};

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Path of the probe. Every user may get this path, so the probe is harmless if a server ignores the impersonation
/// headers.
const PATH: &str = "/version";

pub(super) trait ImpersonationObserver: Send + Sync + 'static {
    fn set_impersonation_filter(&self, cluster: &Arc<Cluster>, filter: ImpersonationFilter);
}

/// Starts the probes of a cluster. They run until the returned guard is dropped. Must be called within a tokio runtime.
pub(super) fn start(mirror: Weak<dyn ImpersonationObserver>, cluster: &Arc<Cluster>) -> Option<DropGuard> {
    let client = cluster.setup.client.as_ref().ok()?.clone();
    let stop = CancellationToken::new();
    tokio::spawn(stop.clone().run_until_cancelled_owned(run(mirror, Arc::clone(cluster), client)));
    Some(stop.drop_guard())
}

async fn run(mirror: Weak<dyn ImpersonationObserver>, cluster: Arc<Cluster>, client: ClusterClient) {
    let mut answered = Instant::now();
    loop {
        let (begun, connections) = (Instant::now(), client.connections_made());
        let found = probe_filter(&client).await;
        let Some(mirror) = mirror.upgrade() else { return };
        match found {
            Some(filter) => {
                answered = Instant::now();
                mirror.set_impersonation_filter(&cluster, filter);
            }
            None if cluster.is_out_of_reach() => answered = Instant::now(),
            None if answered.elapsed() >= UNANSWERED_MAX => {
                mirror.set_impersonation_filter(&cluster, ImpersonationFilter::Legacy);
            }
            None => {}
        }
        drop(mirror);
        let pause = if found.is_some() { INTERVAL } else { CONNECTIONS_INTERVAL };
        loop {
            sleep_until(nearest_tick(Instant::now() + CONNECTIONS_INTERVAL)).await;
            // The timer may fire a little early. So the pause ends if less than half a check interval is left.
            if begun.elapsed() + CONNECTIONS_INTERVAL / 2 >= pause || client.connections_made() != connections {
                break;
            }
        }
    }
}

/// Returns the filter of all endpoints: the older filter if one endpoint has it. `None` if an endpoint does not answer.
/// Behind a load balancer, Tributary sees the answer of a single kube-apiserver, and assumes the same filter for the
/// others.
async fn probe_filter(client: &ClusterClient) -> Option<ImpersonationFilter> {
    let mut all = None;
    for endpoint in well(&client.endpoints()) {
        match probe_endpoint(client, endpoint).await? {
            ImpersonationFilter::Legacy => return Some(ImpersonationFilter::Legacy),
            filter => all = Some(filter),
        }
    }
    all
}

async fn probe_endpoint(client: &ClusterClient, endpoint: usize) -> Option<ImpersonationFilter> {
    let request = Request::get(PATH).header(header::ACCEPT, "application/json").body(body::empty()).ok()?;
    let answer = tokio::time::timeout(ANSWER_WITHIN, async {
        let answer = body::send(client.transport_with_uid_only(endpoint), request).await.ok()?;
        let code = answer.status();
        let text = body::whole_up_to(answer.into_body(), ANSWER_BYTES_MAX).await.unwrap_or_default();
        Some((code, text))
    });
    let (code, text) = answer.await.ok()??;
    match code {
        // An overloaded server rejects the probe before its impersonation filter runs.
        StatusCode::TOO_MANY_REQUESTS => None,
        code if code.is_server_error() => None,
        code => Some(filter_from_answer(code, &text)),
    }
}

/// Returns the filter that gives this answer. The source of the texts is apiserver's
/// `pkg/endpoints/filters/impersonation`: `processImpersonationHeaders` in `constrained_impersonation.go`, and
/// `buildImpersonationRequests` in `impersonation.go`.
fn filter_from_answer(code: StatusCode, text: &[u8]) -> ImpersonationFilter {
    let message = rewrite::status_message(text).unwrap_or_default();
    let is_constrained = code == StatusCode::BAD_REQUEST
        && message.starts_with("requested &user.DefaultInfo{")
        && message.ends_with("} without impersonating a user name");
    if is_constrained { ImpersonationFilter::Constrained } else { ImpersonationFilter::Legacy }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::Status;

    use super::*;

    #[test]
    fn constrained_impersonation_is_recognized_only_by_its_exact_message() {
        use ImpersonationFilter::{Constrained, Legacy};
        let constrained = r#"requested &user.DefaultInfo{Name:"", UID:"tributary.dev:nobody", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name"#;
        let legacy = "requested [{UID   tributary.dev:nobody authentication.k8s.io/v1  }] without impersonating a user";
        for (code, message, expected) in [
            (400, constrained, Constrained),
            (400, legacy, Legacy),
            (403, constrained, Legacy),
            (200, constrained, Legacy),
            (400, &constrained[1..], Legacy),
            (400, &constrained[..constrained.len() - 1], Legacy),
            (400, "", Legacy),
        ] {
            let status = Status { message: message.to_owned(), ..Status::bad_request("") };
            let text = serde_json::to_vec(&status).unwrap();
            assert_eq!(filter_from_answer(StatusCode::from_u16(code).unwrap(), &text), expected, "{code} {message}");
        }
        assert_eq!(filter_from_answer(StatusCode::BAD_REQUEST, constrained.as_bytes()), Legacy);
        // This server ignores the impersonation headers.
        assert_eq!(filter_from_answer(StatusCode::OK, br#"{"major":"1","minor":"36"}"#), Legacy);
    }
}
