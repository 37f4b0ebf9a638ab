//! The first request on a new connection, which reads the uid of the cluster ([`crate::cluster_uid`]).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use tokio::time::{Duration, timeout};
use tributary_apimachinery::body::{self, BoxError};
use tributary_apimachinery::permit::RequestPermit;
use tributary_apimachinery::{ClusterName, explain};

use crate::cluster_uid::{ClusterUid, KnownCluster, UidMatch, is_uid};
use crate::credentials::CurrentCredentials;
use crate::credentials::identity::Impersonation;
use crate::credentials::user::CurrentUser;
use crate::error::ForwardError;
use crate::pool::connection_task::ConnectionTask;
use crate::pool::dial::Dialed;
use crate::pool::stream_counts::{SentStream, StreamCounts};
use crate::pool::watch_stream::WatchResources;
use crate::target::ServerUrl;

const PATH: &str = "/api/v1/namespaces/kube-system";

/// Maximal length of the response to the uid request, in bytes. 2 MiB, more than etcd's limit of an object.
const RESPONSE_BYTES_MAX: usize = 2 << 20;

/// Reads the uid of the cluster on each new connection to an endpoint.
pub(crate) struct UidRequest {
    pub(crate) cluster: ClusterName,
    pub(crate) target: Arc<ServerUrl>,
    pub(crate) user: CurrentUser,
    pub(crate) extra_headers: HeaderMap,
    pub(crate) known: Arc<KnownCluster>,
    pub(crate) timeout: Duration,
}

/// State of a connection after the request for the uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    Open,
    /// The connection accepts no more requests. Some HTTP/1.1 servers close a connection after each response.
    Closed,
}

struct Answer {
    status: StatusCode,
    body: Bytes,
    connection_state: ConnectionState,
}

#[derive(Deserialize)]
struct Namespace {
    metadata: NamespaceMetadata,
}

#[derive(Deserialize)]
struct NamespaceMetadata {
    uid: ClusterUid,
}

impl UidRequest {
    /// Reads the uid on a new connection. A server that reports no uid is accepted only if no cluster is expected yet.
    ///
    /// # Errors
    /// The variants of `ForwardError`: `AnotherCluster` for a different uid; `Unauthorized` or `UnknownSender` for a
    /// 401; `ClusterUnconfirmed` for a missing uid if a cluster is expected.
    pub(crate) fn read_uid<'a>(
        &'a self,
        dialed: &'a mut Dialed,
        credentials: &'a Arc<CurrentCredentials>,
    ) -> BoxFuture<'a, Result<ConnectionState, ForwardError>> {
        Box::pin(self.request_uid(dialed, credentials))
    }

    async fn request_uid(
        &self,
        dialed: &mut Dialed,
        credentials: &Arc<CurrentCredentials>,
    ) -> Result<ConnectionState, ForwardError> {
        if !self.known.is_uid_required() {
            return Ok(ConnectionState::Open);
        }
        let credentials = &self.own_credentials(credentials).await?;
        let is_http1 = matches!(dialed, Dialed::Http1(..));
        let answered = timeout(self.timeout, self.send_uid_request(dialed, credentials)).await;
        let problem = match answered {
            Ok(Ok(answer)) => return self.judge(&answer, credentials).await,
            Ok(Err(error)) => explain(&*error),
            Err(_) => format!("no answer within {:?}", self.timeout),
        };
        self.unconfirmed(problem, false)?;
        // The response to the uid request may be unfinished. Over HTTP/1.1, it then still occupies the connection.
        Ok(if is_http1 { ConnectionState::Closed } else { ConnectionState::Open })
    }

    /// Returns the credentials of the configured user, because an impersonator need not have the right to get the
    /// namespace.
    async fn own_credentials(
        &self,
        credentials: &Arc<CurrentCredentials>,
    ) -> Result<Arc<CurrentCredentials>, ForwardError> {
        if credentials.is_of_configured_user {
            return Ok(Arc::clone(credentials));
        }
        let own = self.user.load_full().credentials.get().await;
        own.map_err(|message| ForwardError::Credentials { cluster: self.cluster.clone(), message })
    }

    async fn send_uid_request(
        &self,
        dialed: &mut Dialed,
        credentials: &Arc<CurrentCredentials>,
    ) -> Result<Answer, BoxError> {
        let user = self.user.load_full();
        let request = self.request(dialed, user.impersonation.as_ref(), credentials);
        exchange(dialed, request).await
    }

    async fn judge(
        &self,
        answer: &Answer,
        credentials: &Arc<CurrentCredentials>,
    ) -> Result<ConnectionState, ForwardError> {
        match answer.status {
            StatusCode::OK => self.compare(answer),
            // A kube-apiserver may close the connection after a 401, so the connection is not used.
            StatusCode::UNAUTHORIZED => Err(self.rejected(credentials).await),
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
                self.known.record_withheld();
                let problem = "forbidden: Tributary's account may not get the namespace kube-system; grant this right \
                               (docs/shared-mode.md)";
                self.unconfirmed(problem.to_owned(), true).map(|()| answer.connection_state)
            }
            status => {
                let is_busy = status == StatusCode::TOO_MANY_REQUESTS;
                self.unconfirmed(format!("status {status}"), is_busy).map(|()| answer.connection_state)
            }
        }
    }

    /// Renews rejected credentials for the next connection, and returns the error for this connection.
    async fn rejected(&self, credentials: &Arc<CurrentCredentials>) -> ForwardError {
        let (cluster, own) = (self.cluster.clone(), &self.user.load_full().credentials);
        match own.renew_after_unauthorized(credentials).await {
            true => ForwardError::UnknownSender { cluster },
            false => ForwardError::Unauthorized { cluster, remedy: own.remedy() },
        }
    }

    fn compare(&self, answer: &Answer) -> Result<ConnectionState, ForwardError> {
        match serde_json::from_slice::<Namespace>(&answer.body) {
            Ok(Namespace { metadata: NamespaceMetadata { uid } }) if is_uid(&uid) => match self.known.compare(&uid) {
                UidMatch::Same => Ok(answer.connection_state),
                UidMatch::Other => Err(ForwardError::AnotherCluster { cluster: self.cluster.clone() }),
            },
            _ => self.unconfirmed("an answer without a uid".to_owned(), true).map(|()| answer.connection_state),
        }
    }

    /// Returns the error for a server that closes each connection after the uid request.
    pub(crate) fn closed(&self) -> ForwardError {
        let (cluster, address) = (self.cluster.clone(), self.target.address.clone());
        let problem = "the server closes each connection after its first answer".into();
        ForwardError::ClusterUnconfirmed { cluster, address, problem, is_answered: false }
    }

    /// Refuses a connection whose server reported no uid, if a cluster is expected.
    fn unconfirmed(&self, problem: String, is_answered: bool) -> Result<(), ForwardError> {
        if self.known.is_open_to_any() {
            return Ok(());
        }
        let (cluster, address) = (self.cluster.clone(), self.target.address.clone());
        Err(ForwardError::ClusterUnconfirmed { cluster, address, problem: problem.into(), is_answered })
    }

    fn request(&self, dialed: &Dialed, own: Option<&Impersonation>, credentials: &CurrentCredentials) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = Method::GET;
        let uri = self.target.join(&Uri::from_static(PATH)).unwrap_or_else(|_| Uri::from_static(PATH));
        let headers = request.headers_mut();
        for (name, value) in self.extra_headers.iter().chain(own.into_iter().flat_map(Impersonation::headers)) {
            headers.append(name, value.clone());
        }
        credentials.authorize(headers);
        match dialed {
            Dialed::Http1(..) => {
                if let Ok(host) = HeaderValue::from_str(self.target.authority().as_str()) {
                    headers.insert(HOST, host);
                }
                *request.version_mut() = Version::HTTP_11;
                *request.uri_mut() = uri.path_and_query().cloned().map(Uri::from).unwrap_or_default();
            }
            Dialed::Http2(..) | Dialed::Watches(..) => *request.uri_mut() = uri,
        }
        request
    }
}

/// Sends a request on a connection that no task drives yet, and reads the response.
fn exchange(dialed: &mut Dialed, request: Request<()>) -> BoxFuture<'_, Result<Answer, BoxError>> {
    Box::pin(exchange_on(dialed, request))
}

async fn exchange_on(dialed: &mut Dialed, request: Request<()>) -> Result<Answer, BoxError> {
    match dialed {
        Dialed::Http1(sender, connection) => {
            let exchange = async { read(sender.send_request(request.map(|()| body::empty())).await?).await };
            let (answer, end) = drive(exchange, poll_fn(|cx| Pin::new(&mut **connection).poll(cx))).await?;
            let is_open = end == ConnectionEnd::No && {
                let ready = async { sender.ready().await.map_err(BoxError::from) };
                drive(ready, poll_fn(|cx| Pin::new(&mut **connection).poll(cx))).await.is_ok()
            };
            Ok(Answer {
                connection_state: if is_open { ConnectionState::Open } else { ConnectionState::Closed },
                ..answer
            })
        }
        Dialed::Http2(sender, connection) => {
            let mut sender = sender.clone();
            let exchange = async move { read(sender.send_request(request.map(|()| body::empty())).await?).await };
            drive_task(exchange, connection).await
        }
        Dialed::Watches(sender, connection) => {
            let sent = SentStream::on(&Arc::new(StreamCounts::new(1)));
            let resources =
                WatchResources { sent, permit: RequestPermit::from_guard(()), abandoned_read_time: Duration::ZERO };
            let head = sender.send(request, resources)?;
            drive_task(async move { read(head.await??).await }, connection).await
        }
    }
}

async fn read<B>(response: Response<B>) -> Result<Answer, BoxError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>>,
{
    let status = response.status();
    let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await?.to_bytes();
    Ok(Answer { status, body, connection_state: ConnectionState::Open })
}

async fn drive_task<C, E>(
    exchange: impl Future<Output = Result<Answer, BoxError>>,
    connection: &mut ConnectionTask<C>,
) -> Result<Answer, BoxError>
where
    C: Future<Output = Result<(), E>> + Unpin,
    E: Into<BoxError>,
{
    match drive(exchange, poll_fn(|cx| connection.poll_connection(cx))).await? {
        (answer, ConnectionEnd::No) => Ok(answer),
        (answer, ConnectionEnd::Yes) => Ok(Answer { connection_state: ConnectionState::Closed, ..answer }),
    }
}

/// Whether a connection has ended. An ended connection must not be polled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    No,
    Yes,
}

/// Polls a connection until the result is available, or the connection has ended.
async fn drive<T, E: Into<BoxError>>(
    exchange: impl Future<Output = Result<T, BoxError>>,
    connection: impl Future<Output = Result<(), E>>,
) -> Result<(T, ConnectionEnd), BoxError> {
    let (mut exchange, mut connection) = (pin!(exchange), pin!(connection));
    poll_fn(|cx| {
        let ended = connection.as_mut().poll(cx);
        // The result is read first, because bytes that arrived before the end of the connection are still readable.
        match (exchange.as_mut().poll(cx), ended) {
            (Poll::Ready(result), ended) => {
                let end = if ended.is_ready() { ConnectionEnd::Yes } else { ConnectionEnd::No };
                Poll::Ready(result.map(|result| (result, end)))
            }
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            (Poll::Pending, Poll::Ready(Ok(()))) => {
                Poll::Ready(Err("the connection was closed before the answer".into()))
            }
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error.into())),
        }
    })
    .await
}
