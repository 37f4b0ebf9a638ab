//! Tributary's own request to one endpoint, whatever the state of the endpoint. The caller uses the status and the
//! duration of the response, and not its body.

use std::sync::Arc;

use http::{Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::body::{self, Body};

use crate::credentials::CurrentCredentials;
use crate::credentials::identity::RequestIdentity;
use crate::credentials::user::MemberUser;
use crate::endpoints::destination::Destination;
use crate::endpoints::endpoint::Endpoint;
use crate::error::ForwardError;
use crate::forward::send_terms::SendTerms;
use crate::member::ClientInner;
use crate::permit_pool::RequestOrigin;
use crate::pool::{PoolKey, StreamClass};

/// Number of attempts. If the connection of the first attempt breaks, the second attempt uses a new connection.
const TRIES: usize = 2;

/// Maximal number of bytes that are read of the response body. The body is read because a connection can be used again
/// only after the end of the body.
const ANSWER_LIMIT: usize = 4096;

#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnResponse {
    pub(crate) status: StatusCode,
    /// Duration of the request, without the connection attempt. A slow handshake is not the endpoint's fault, and over
    /// HTTP/1.1 a handshake may precede each request.
    pub(crate) took: Duration,
}

pub(crate) async fn send_to_endpoint(
    member: &Arc<ClientInner>,
    endpoint: &Arc<Endpoint>,
    credentials: &Arc<CurrentCredentials>,
    user: &MemberUser,
    path: &Uri,
) -> Result<OwnResponse, ForwardError> {
    let pool_key = PoolKey { stream_class: StreamClass::Short, origin: RequestOrigin::Ourselves, peer: None };
    // Callers have time limits of their own. This time limit is at least as long as each of them.
    let limit = Some(member.tuning.head_timeout.max(member.tuning.probe.answer_within));
    let terms = SendTerms { pool_key, destination: &Destination::Any, limit, permit: None };
    let mut tries = TRIES;
    loop {
        tries -= 1;
        let mut request = Request::new(body::empty());
        *request.method_mut() = Method::GET;
        *request.uri_mut() = path.clone();
        member.set_identity(request.headers_mut(), &RequestIdentity::Member, user)?;
        credentials.authorize(request.headers_mut());
        let endpoint_request = endpoint.begin_request(StreamClass::Short);
        let connection = endpoint.pool.acquire(pool_key, credentials).await?;
        let sent_at = Instant::now();
        match member.send(endpoint_request, connection, request, path, &terms).await {
            Ok(response) => {
                let status = response.status();
                read(response.into_body()).await;
                return Ok(OwnResponse { status, took: sent_at.elapsed() });
            }
            Err(failed) if tries == 0 || !matches!(failed.error, ForwardError::Send { .. }) => return Err(failed.error),
            Err(_) => {}
        }
    }
}

/// Reads a short response body to its end, so that the connection can be used again.
async fn read(mut answer: Body) {
    let mut length = 0;
    while let Some(Ok(frame)) = answer.frame().await {
        length += frame.data_ref().map_or(0, bytes::Bytes::len);
        if length > ANSWER_LIMIT {
            return;
        }
    }
}
