//! How long a request may take, where it says so itself: the parameter `timeout`, which kubectl's `--request-timeout` sets.

use std::pin::Pin;
use std::time::Duration;

use tributary_apimachinery::{Query, RequestInfo, Status, duration};

/// What kube-apiserver gives a request at most (`--request-timeout`); who asks for more gets no more.
const LONGEST: Duration = Duration::from_secs(60);

/// The answer, if it is there within the limit that the request sets itself. It is borrowed: each place that a future is moved to
/// takes its size, and a request's is the largest part of what an idle watch occupies.
///
/// # Errors
/// 400 for a limit that is no duration, 504 once it has passed.
pub(crate) async fn within<T>(
    info: &RequestInfo,
    query: Option<&str>,
    answer: Pin<&mut impl Future<Output = Result<T, Status>>>,
) -> Result<T, Status> {
    match of(info, query)? {
        None => answer.await,
        Some(limit) => tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| Err(Status::request_timed_out())),
    }
}

/// The limit that a request sets itself; `None` where it sets none, or none that is shorter than the one it has anyway. What
/// lasts has no limit, and a cluster's own view is that cluster's to limit.
///
/// # Errors
/// 400 for a text that is no duration, as kube-apiserver's `WithRequestDeadline`.
fn of(info: &RequestInfo, query: Option<&str>) -> Result<Option<Duration>, Status> {
    // Most requests have none; they are not to pay for reading the others' parameters.
    if info.cluster.is_some()
        || info.class().is_long_running()
        || !query.is_some_and(|query| query.contains("timeout="))
    {
        return Ok(None);
    }
    match Query::parse(query).get("timeout") {
        None | Some("") => Ok(None),
        Some(text) => {
            let limit = duration::parse(text).map_err(|error| {
                Status::bad_request(format!("invalid timeout specified in the request URL - {error}"))
            })?;
            Ok(Some(limit).filter(|limit| !limit.is_zero() && *limit < LONGEST))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(path: &str, query: &str) -> Result<Option<u64>, String> {
        let info = RequestInfo::parse("GET", path, Some(query)).unwrap();
        let limit = of(&info, Some(query)).map_err(|status| status.message)?;
        Ok(limit.map(|limit| limit.as_secs()))
    }

    #[test]
    fn a_limit_shorter_than_the_servers_counts() {
        for (path, query, limit) in [
            ("/api/v1/pods", "limit=500", None),
            ("/api/v1/pods", "timeout=", None),
            ("/api/v1/pods", "limit=500&timeout=32s", Some(32)),
            ("/api/v1/pods", "timeout=1s&timeout=2s", Some(1)),
            ("/api/v1/pods", "timeout=0s", None),
            ("/api/v1/pods", "timeout=-1s", None),
            ("/version", "timeout=3m", None),
            ("/version", "timeout=59s", Some(59)),
            ("/api/v1/pods", "watch=1&timeoutSeconds=5", None),
        ] {
            assert_eq!(asked(path, query), Ok(limit), "{path}?{query}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_but_where_there_is_no_limit() {
        let refusal = r#"invalid timeout specified in the request URL - time: missing unit in duration "5""#;
        assert_eq!(asked("/api/v1/pods", "timeout=5"), Err(refusal.to_owned()));
        for (path, query) in [
            ("/api/v1/pods", "watch=1&timeout=5"),
            ("/api/v1/namespaces/a/pods/b/log", "timeout=5"),
            ("/clusters/eu/api/v1/pods", "timeout=5"),
        ] {
            assert_eq!(asked(path, query), Ok(None), "{path}?{query}");
        }
    }
}
