//! Finds out whether an endpoint that gives clients errors is to blame for them (`outlier.rs`), by questions of our own.
//!
//! Two are put: `/readyz`, or what the member's probe asks for instead, which says whether the server takes itself for
//! sound, and one for an object that every
//! cluster has, which goes through authentication, authorization and storage as clients' requests do. Whoever may not
//! read that is answered 403, which is an answer. An endpoint that gives none is for `checks.rs` to judge.

use std::sync::Arc;

use http::Uri;
use tokio::time::{Instant, sleep_until, timeout};

use crate::endpoint::Endpoint;
use crate::member::ClientInner;
use crate::outlier::{Change, QUESTION_INTERVAL, is_suspicious};
use crate::own_question::ask;
use crate::probe::ANSWER_WITHIN;

/// An object that every cluster has. It is asked for after the probe's path, if that is not answered by an error.
const OBJECT: &str = "/api/v1/namespaces/default";

/// Asks one of several endpoints whenever it is suspected, and until it is well again; for as long as this is polled.
pub(crate) async fn follow(member: Arc<ClientInner>, endpoint: Arc<Endpoint>) {
    loop {
        if !endpoint.is_ejected() {
            endpoint.suspected().await;
        }
        let asked = Instant::now();
        if let Ok(Some(fault)) = timeout(ANSWER_WITHIN, fault(&member, &endpoint)).await {
            note(&member, &endpoint, fault.as_deref());
        }
        sleep_until(asked + QUESTION_INTERVAL).await;
    }
}

/// What is wrong with its answers, if anything is. `None` where a question was not answered.
async fn fault(member: &Arc<ClientInner>, endpoint: &Arc<Endpoint>) -> Option<Option<String>> {
    let user = member.user.load_full();
    let credentials = member.credentials(&user).await.ok()?;
    for path in [member.tuning.probe.uri(), Uri::from_static(OBJECT)] {
        let status = ask(member, endpoint, &credentials, &user, &path).await.ok()?;
        if is_suspicious(status) {
            return Some(Some(format!("{path} is answered {status}")));
        }
    }
    Some(None)
}

fn note(member: &ClientInner, endpoint: &Endpoint, fault: Option<&str>) {
    let (cluster, address) = (&member.name, &endpoint.target.address);
    match endpoint.judged(fault.is_none()) {
        Change::Ejected => {
            let reason = fault.unwrap_or_default();
            tracing::warn!(%cluster, endpoint = %address, reason, "an endpoint answers with errors; the others are used");
        }
        Change::Returned => {
            tracing::info!(%cluster, endpoint = %address, "the endpoint is used again, little by little")
        }
        Change::None => {}
    }
}
