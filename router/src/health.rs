//! `/healthz`, `/livez`, `/readyz`: text as kube-apiserver gives it, with a line for each cluster.
//!
//! Source: kubernetes/apiserver `pkg/server/healthz/healthz.go`. A cluster that is out of reach does not make this
//! process unready: it still serves the others, and says on each answer what is missing.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Response, StatusCode};
use tributary_apimachinery::query::Query;
use tributary_apimachinery::{ClusterName, RequestInfo, RequestTarget};
use tributary_proxy::{ClusterClient, ReachabilityState};

use crate::body::{self, Body};
use crate::topology::Cluster;

/// Whether a request asks for this process's own health, which is told however busy it is.
pub(crate) fn is_check(info: &RequestInfo) -> bool {
    let check = info.path.trim_start_matches('/').split('/').next();
    let is_own = info.cluster.is_none() && matches!(info.target, RequestTarget::NonResource);
    is_own && matches!(check, Some("healthz" | "livez" | "readyz"))
}

/// The answer to a health check. `draining` makes `/readyz` fail, so that load balancers send new clients elsewhere.
/// `refusals` says what clusters that answer refuse to show; it is asked only for answers that have a line per cluster.
pub(crate) fn answer<'a>(
    path: &str,
    query: Option<&str>,
    clusters: impl Iterator<Item = &'a Arc<Cluster>>,
    refusals: impl FnOnce() -> BTreeMap<ClusterName, String>,
    draining: bool,
) -> Response<Body> {
    let mut segments = path.trim_matches('/').split('/');
    let check = segments.next().unwrap_or_default();
    let ready = !(check == "readyz" && draining);
    let wanted = segments.collect::<Vec<_>>().join("/");
    let query = Query::parse(query);
    let mut lines = vec![("ping".to_owned(), None)];
    if check == "readyz" {
        lines.push(("shutdown".to_owned(), draining.then(|| "this process is shutting down".to_owned())));
        let told = !wanted.is_empty() || query.get("verbose").is_some();
        let mut refusals = if told { refusals() } else { BTreeMap::new() };
        for cluster in clusters {
            let problem = problem(cluster).or_else(|| refusals.remove(cluster.name()));
            lines.push((format!("cluster/{}", cluster.name()), problem));
            lines.extend(credentials(cluster));
            lines.extend(endpoints(cluster));
        }
    }
    if !wanted.is_empty() {
        return match lines.iter().find(|(name, _)| *name == wanted) {
            None => super::response::page_not_found(),
            Some((_, None)) => text(StatusCode::OK, "ok".into()),
            Some((_, Some(problem))) => {
                text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {problem}\n"))
            }
        };
    }
    let status = if ready { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    if ready && query.get("verbose").is_none() {
        return text(status, "ok".into());
    }
    let mut out = String::new();
    for (name, problem) in &lines {
        match problem {
            None => out.push_str(&format!("[+]{name} ok\n")),
            Some(problem) => out.push_str(&format!("[-]{name} failed: {problem}\n")),
        }
    }
    out.push_str(&format!("{check} check {}\n", if ready { "passed" } else { "failed" }));
    text(status, out)
}

fn problem(cluster: &Cluster) -> Option<String> {
    cluster.problem().or_else(|| cluster.discovery().is_none().then(|| "it has not been asked yet".to_owned()))
}

/// A line for credentials that cannot be renewed: the cluster itself may be well as long as the old ones are valid.
fn credentials(cluster: &Cluster) -> Option<(String, Option<String>)> {
    let problem = cluster.setup.client.as_ref().ok().and_then(ClusterClient::credentials_problem)?;
    Some((format!("cluster/{}/credentials", cluster.name()), Some(problem)))
}

/// A line for each of several endpoints; of a lone one the cluster's line says it.
fn endpoints(cluster: &Cluster) -> impl Iterator<Item = (String, Option<String>)> {
    let all = cluster.setup.client.as_ref().map(ClusterClient::endpoints).unwrap_or_default();
    let several = all.len() > 1;
    let name = cluster.name().clone();
    all.into_iter().filter(move |_| several).map(move |endpoint| {
        let problem = match endpoint.reachability.state {
            ReachabilityState::Unreachable { reason } => Some(reason.to_string()),
            _ => None,
        };
        (format!("cluster/{name}/endpoint/{}", endpoint.address), problem)
    })
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    super::response::with_content_type(status, "text/plain; charset=utf-8", body::full(text))
}
