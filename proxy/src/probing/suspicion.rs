//! Finds out whether an endpoint is to blame for the errors, broken answers and long waits that clients have there
//! (`outlier.rs`), by questions of our own.
//!
//! Two are put: `/readyz`, or what the member's probe asks for instead, which says whether the server takes itself for
//! sound, and one for an object that every
//! cluster has, which goes through authentication, authorization and storage as clients' requests do. Whoever may not
//! read that is answered 403, which is an answer. An endpoint without an answer is judged by `probing.rs`; one at which
//! the question breaks off is to blame, as these have a connection that no client's request is on. Late are answers
//! that take much longer than others' (`slowness.rs`).

use std::sync::Arc;

use http::Uri;
use tokio::time::{Duration, Instant, sleep_until, timeout};

use crate::endpoints::endpoint::Endpoint;
use crate::endpoints::outlier::{Change, QUESTION_INTERVAL, is_suspicious};
use crate::error::ForwardError;
use crate::forward::own_question::{Answered, ask};
use crate::health::probe::ANSWER_WITHIN;
use crate::member::ClientInner;

/// An object that every cluster has. It is asked for after the probe's path, if that is not answered by an error.
const OBJECT: &str = "/api/v1/namespaces/default";

/// So many answers in a row are to be late before it is left out. 3: within 3 s, and longer than a pause of its garbage
/// collector.
const LATE_IN_A_ROW: u32 = 3;

/// Asks one of several endpoints whenever it is suspected, and until it is well again; for as long as this is polled.
pub(crate) async fn follow(member: Arc<ClientInner>, endpoint: Arc<Endpoint>) {
    let mut late = 0;
    loop {
        if !endpoint.is_ejected() && late == 0 {
            endpoint.suspected().await;
        }
        let asked = Instant::now();
        late = match timeout(ANSWER_WITHIN, ask_both(&member, &endpoint)).await {
            Ok(Some(Answers { fault: None, took })) if member.endpoints.is_slow(&endpoint, took) => {
                let is_ejected = endpoint.is_ejected();
                if is_ejected || late + 1 >= LATE_IN_A_ROW {
                    let fault = format!("its answers to our own questions take {took:.1?}, much longer than others'");
                    note(&member, &endpoint, Some(&fault));
                }
                if is_ejected { 0 } else { late + 1 }
            }
            Ok(Some(Answers { fault, .. })) => {
                note(&member, &endpoint, fault.as_deref());
                0
            }
            Ok(None) | Err(_) => 0,
        };
        sleep_until(asked + QUESTION_INTERVAL).await;
    }
}

/// How our own questions were answered.
struct Answers {
    /// What is wrong with the answers, if anything is.
    fault: Option<String>,
    /// How long the first answer took.
    took: Duration,
}

/// `None` where a question was not answered.
async fn ask_both(member: &Arc<ClientInner>, endpoint: &Arc<Endpoint>) -> Option<Answers> {
    let user = member.user.load_full();
    let credentials = member.credentials(&user).await.ok()?;
    let mut first_took = None;
    for path in [member.tuning.probe.uri(), Uri::from_static(OBJECT)] {
        let fault = match ask(member, endpoint, &credentials, &user, &path).await {
            Ok(Answered { status, .. }) if is_suspicious(status) => format!("{path} is answered {status}"),
            Ok(Answered { took, .. }) => {
                first_took.get_or_insert(took);
                continue;
            }
            // Nobody else's requests are on that connection.
            Err(error @ ForwardError::Send { .. }) => {
                endpoint.breaker.failed();
                format!("{path}: {}", error.at_endpoint())
            }
            Err(_) => return None,
        };
        return Some(Answers { fault: Some(fault), took: first_took.unwrap_or_default() });
    }
    Some(Answers { fault: None, took: first_took.unwrap_or_default() })
}

fn note(member: &ClientInner, endpoint: &Endpoint, fault: Option<&str>) {
    let (cluster, address) = (&member.name, &endpoint.target.address);
    match endpoint.judged(fault) {
        Change::Ejected => {
            let reason = fault.unwrap_or_default();
            tracing::warn!(%cluster, endpoint = %address, reason, "an endpoint does not answer as it should; the others are used");
        }
        Change::Returned => {
            tracing::info!(%cluster, endpoint = %address, "the endpoint is used again, little by little")
        }
        Change::None => {}
    }
}
