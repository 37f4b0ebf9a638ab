//! Generates the log of a simulated pod, with the lines of a small web service.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response};
use jiff::{SignedDuration, Timestamp};
use tributary_apimachinery::{Query, Status};

use crate::api::Api;
use crate::body::{self, Body};
use crate::generate::layout::mix;
use crate::list::named;
use crate::path::ResourcePath;
use crate::status;

const LINES: u64 = 20;

/// Handles the subresource `log`, with `tailLines`, `timestamps` and `follow` (one line per second until the client
/// disconnects).
pub(crate) fn log(api: &Arc<Api>, target: &ResourcePath, query: &Query<'_>) -> Result<Response<Body>, Status> {
    let key = target.key().unwrap_or_default();
    let pod = api.store().view(target.resource).get(&key);
    let Some(pod) = pod else {
        return Err(Status::not_found(&named(target), target.name.as_deref().unwrap_or_default()));
    };
    if api.faults().kubelets_refuse() {
        return Err(status::unauthorized_kubelet(&key));
    }
    let seed = pod.uid().bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
    let tail = query.get("tailLines").and_then(|lines| lines.parse().ok()).unwrap_or(LINES).min(LINES);
    let timestamps = query.bool("timestamps") == Some(true);
    let now = Timestamp::now();
    let mut text = String::new();
    for line in LINES - tail..LINES {
        let age = SignedDuration::from_secs(i64::try_from(LINES - line).unwrap_or(0));
        text += &self::line(seed, line, now.saturating_sub(age).unwrap_or(now), timestamps);
    }
    let body = if query.bool("follow") == Some(true) {
        let (sender, body) = body::streamed(api.faults());
        api.spawn(async move {
            let mut number = LINES;
            loop {
                if sender.send(Bytes::from(std::mem::take(&mut text))).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                }
                text = line(seed, number, Timestamp::now(), timestamps);
                number += 1;
            }
        });
        body
    } else {
        body::full(text)
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

fn line(seed: u64, number: u64, time: Timestamp, timestamps: bool) -> String {
    let hash = mix(seed ^ number);
    let path = ["/", "/healthz", "/api/items", "/api/orders", "/metrics"][(hash % 5) as usize];
    let status = if (hash / 5).is_multiple_of(50) { 500 } else { 200 };
    let mut out = String::new();
    if timestamps {
        // Writing to a String cannot fail.
        let _ = write!(out, "{time} ");
    }
    let _ = writeln!(
        out,
        "level=info msg=\"request served\" path={path} status={status} duration={}ms",
        1 + hash / 250 % 90
    );
    out
}
