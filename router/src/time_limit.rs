//! Time limit until a request's answer begins, including the arrival of the request's body.
//!
//! The limit is the server's (`--request-timeout`), or a shorter limit in the request's parameter `timeout`, which
//! kubectl's `--request-timeout` sets. Long-running requests have no limit: watches, and streams to and from a pod,
//! service or node.

use std::time::Duration;

use tributary_answers::refusal::{Refusal, RequestRefusal};
use tributary_apimachinery::{Query, RequestInfo, duration};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeLimit {
    pub(crate) time: Duration,
    pub(crate) is_own: bool,
}

/// Returns the time limit of a request that is not long-running.
pub(crate) fn time_for(info: &RequestInfo, query: Option<&str>, longest: Duration) -> Duration {
    // An earlier stage has already refused requests with an unreadable limit.
    limit_for(info, query, longest).ok().flatten().map_or(longest, |limit| limit.time)
}

/// Returns the limit of a request; `None` for a long-running request. For a cluster's own view, the cluster checks the
/// parameter.
///
/// # Errors
/// 400 for a text that is not a duration, as kube-apiserver's `WithRequestDeadline`.
pub(crate) fn limit_for(
    info: &RequestInfo,
    query: Option<&str>,
    longest: Duration,
) -> Result<Option<TimeLimit>, Refusal> {
    if info.class().is_long_running() {
        return Ok(None);
    }
    let servers = Some(TimeLimit { time: longest, is_own: false });
    // Most requests have no such parameter. For them, the other parameters are not parsed.
    if info.cluster.is_some() || !query.is_some_and(|query| query.contains("timeout") || query.contains('%')) {
        return Ok(servers);
    }
    match Query::parse(query).get("timeout") {
        None | Some("") => Ok(servers),
        Some(text) => {
            let time = duration::parse(text).map_err(RequestRefusal::Timeout)?;
            // A limit that is longer than the server's limit has no effect.
            Ok(Some(TimeLimit { time, is_own: true })
                .filter(|own| !own.time.is_zero() && own.time < longest)
                .or(servers))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);

    fn seconds_for(path: &str, query: &str) -> Result<Option<u64>, String> {
        let info = RequestInfo::parse("GET", path, Some(query)).unwrap();
        let limit = limit_for(&info, Some(query), LONGEST).map_err(|refusal| refusal.to_string())?;
        Ok(limit.map(|limit| limit.time.as_secs()))
    }

    #[test]
    fn timeout_parameter_applies_if_it_is_below_the_servers_limit() {
        for (path, query, limit) in [
            ("/api/v1/pods", "limit=500", Some(60)),
            ("/api/v1/pods", "timeout=", Some(60)),
            ("/api/v1/pods", "limit=500&timeout=32s", Some(32)),
            ("/api/v1/pods", "timeout=1s&timeout=2s", Some(1)),
            ("/api/v1/pods", "time%6Fut=32s", Some(32)),
            ("/api/v1/pods", "timeout=0s", Some(60)),
            ("/api/v1/pods", "timeout=-1s", Some(60)),
            ("/version", "timeout=3m", Some(60)),
            ("/version", "timeout=59s", Some(59)),
            ("/api/v1/pods", "watch=1&timeoutSeconds=5", None),
        ] {
            assert_eq!(seconds_for(path, query), Ok(limit), "{path}?{query}");
        }
    }

    #[test]
    fn invalid_timeout_is_refused_only_for_requests_with_a_time_limit() {
        let refusal = r#"invalid timeout specified in the request URL - time: missing unit in duration "5""#;
        assert_eq!(seconds_for("/api/v1/pods", "timeout=5"), Err(refusal.to_owned()));
        for (path, query) in [("/api/v1/pods", "watch=1&timeout=5"), ("/api/v1/namespaces/a/pods/b/log", "timeout=5")] {
            assert_eq!(seconds_for(path, query), Ok(None), "{path}?{query}");
        }
        assert_eq!(seconds_for("/clusters/eu/api/v1/pods", "timeout=5"), Ok(Some(60)), "that cluster judges it");
    }
}
