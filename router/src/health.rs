//! `/healthz`, `/livez`, `/readyz`: text in kube-apiserver's form, with a line for each cluster.
//!
//! Source: kubernetes/apiserver `pkg/server/healthz/healthz.go`. An unreachable cluster does not make Tributary
//! unready: Tributary still serves the other clusters, and each answer names the missing cluster.

use http::{Response, StatusCode};
use tributary_answers::answer;
use tributary_apimachinery::query::Query;
use tributary_apimachinery::{RequestInfo, RequestTarget};
use tributary_policy::is_health_check;
use tributary_sharing::body::{self, Body};

use tributary_fleet::report::{ClusterReport, Report};

/// Returns whether a request is a health check of Tributary itself, which even a busy process answers.
pub(crate) fn is_check(info: &RequestInfo) -> bool {
    let is_own = info.cluster.is_none() && matches!(info.target, RequestTarget::NonResource);
    is_own && is_health_check(&info.path)
}

/// Returns the name of a check, and the name of the requested line of its report: `/readyz/cluster/eu` requests one
/// line. Empty for all lines.
fn parts(path: &str) -> (&str, &str) {
    path.trim_matches('/').split_once('/').unwrap_or((path.trim_matches('/'), ""))
}

/// Returns whether the answer to a health check has lines for clusters. Such an answer needs a report.
pub(crate) fn shows_clusters(path: &str, query: Option<&str>, draining: bool) -> bool {
    let (check, _) = parts(path);
    check == "readyz" && (draining || requests_clusters(path, query))
}

/// Returns whether a health check requests one line of its answer, or all lines (`verbose`).
pub(crate) fn requests_clusters(path: &str, query: Option<&str>) -> bool {
    let (_, wanted) = parts(path);
    !wanted.is_empty() || Query::parse(query).get("verbose").is_some()
}

/// Answers a health check. `draining` makes `/readyz` fail, so that load balancers choose a different process. Uses
/// only the clusters of `report`, and only if the answer [has lines for clusters](shows_clusters).
pub(crate) fn answer_check(path: &str, query: Option<&str>, report: &Report, draining: bool) -> Response<Body> {
    let (check, wanted) = parts(path);
    let ready = !(check == "readyz" && draining);
    let mut lines = vec![("ping".to_owned(), None)];
    if check == "readyz" {
        lines.push(("shutdown".to_owned(), draining.then(|| "this process is shutting down".to_owned())));
        lines.extend(report.clusters.iter().flat_map(cluster_lines));
    }
    if !wanted.is_empty() {
        return match lines.into_iter().find(|(name, _)| name == wanted) {
            None => super::response::page_not_found(),
            Some((_, None)) => text(StatusCode::OK, "ok".into()),
            Some((_, Some(problem))) => {
                text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {problem}\n"))
            }
        };
    }
    let status = if ready { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    if ready && Query::parse(query).get("verbose").is_none() {
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

/// Returns the lines for a cluster in the answer to `/readyz`. In addition to the cluster's own line, there are lines
/// for problems of a reachable cluster: expired credentials, unknown rights of users, and an unknown identity. A
/// cluster with several endpoints has a line for each endpoint.
fn cluster_lines(cluster: &ClusterReport) -> Vec<(String, Option<String>)> {
    let name = format!("cluster/{}", cluster.name);
    let mut lines = vec![(name.clone(), cluster.problem.clone().or_else(|| cluster.refusal.clone()))];
    if let Some(problem) = &cluster.credentials_problem {
        lines.push((format!("{name}/credentials"), Some(problem.clone())));
    }
    if let Some(problem) = &cluster.rights_problem {
        lines.push((format!("{name}/rights"), Some(problem.clone())));
    }
    if let Some(problem) = &cluster.identity_problem {
        lines.push((format!("{name}/identity"), Some(problem.clone())));
    }
    if cluster.endpoints.len() > 1 {
        let endpoints = cluster.endpoints.iter();
        lines.extend(endpoints.map(|it| (format!("{name}/endpoint/{}", it.address), it.problem.clone())));
    }
    lines
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    answer::with_content_type(status, "text/plain; charset=utf-8", body::full(text))
}
