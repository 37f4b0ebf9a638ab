//! Tests of incomplete bodies, which must never look complete: responses of a member, and requests of disconnected
//! clients.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::BoxError;
use tributary_proxy::{BoxIo, ClientTuning, ClusterClient, RequestIdentity};

use crate::member::{self, Member, Options, SendRequest, eventually, full, get, text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The body ends with END_STREAM on an empty frame.
    Marked,
    /// The body ends with END_STREAM, and a reset follows, because the member needs no more of the request body.
    EarlyButWhole,
    /// The stream is reset with `NO_ERROR` after all bytes of the announced length were sent.
    AfterItsLength,
    Reset(h2::Reason),
}

/// A client of a member whose responses have one frame and then end as `end` requires.
async fn member_that_ends(end: End) -> ClusterClient {
    let connector = BoxCloneSyncService::new(tower::service_fn(move |_: http::Uri| {
        let (near, far) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(far).await.unwrap();
            while let Some(Ok((_request, mut respond))) = connection.accept().await {
                let mut head = Response::new(());
                if end == End::AfterItsLength {
                    head.headers_mut().insert(http::header::CONTENT_LENGTH, 5.into());
                }
                let mut body = respond.send_response(head, false).unwrap();
                body.send_data(Bytes::from_static(b"piece"), false).unwrap();
                tokio::spawn(async move {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    match end {
                        End::Marked => body.send_data(Bytes::new(), true).unwrap(),
                        End::EarlyButWhole => {
                            body.send_data(Bytes::new(), true).unwrap();
                            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                            body.send_reset(h2::Reason::NO_ERROR);
                        }
                        End::AfterItsLength => body.send_reset(h2::Reason::NO_ERROR),
                        End::Reset(reason) => body.send_reset(reason),
                    }
                });
            }
        });
        async move { Ok::<BoxIo, BoxError>(Box::new(near)) }
    }));
    let config = kube::Config::new("http://member.example".parse().unwrap());
    let name = ClusterName::new("c1").unwrap();
    ClusterClient::connect_through(connector, name, config, ClientTuning::default()).await.unwrap()
}

/// Envoy, for example, resets a stream with `NO_ERROR` if its backend aborts.
#[tokio::test]
async fn reset_response_body_is_an_error_unless_complete() {
    for (end, is_whole) in [
        (End::Marked, true),
        (End::EarlyButWhole, true),
        (End::AfterItsLength, true),
        (End::Reset(h2::Reason::NO_ERROR), false),
        (End::Reset(h2::Reason::CANCEL), false),
        (End::Reset(h2::Reason::INTERNAL_ERROR), false),
    ] {
        let client = member_that_ends(end).await;
        let mut with_body = get("/api/v1/pods").map(|_| full("a body"));
        *with_body.method_mut() = http::Method::POST;
        for request in [get("/api/v1/pods"), with_body] {
            let method = request.method().clone();
            let answer = client.send_request(request, RequestIdentity::Member).await.unwrap();
            let read = answer.into_body().collect().await.map(|body| body.to_bytes());
            let expected = is_whole.then(|| Bytes::from_static(b"piece"));
            assert_eq!(read.as_ref().ok(), expected.as_ref(), "{method}, {end:?}: {read:?}");
        }
    }
}

/// A member that records the body of each request. It records `None` for an incomplete body.
async fn noting() -> (Member, Arc<Mutex<Vec<Option<Bytes>>>>) {
    let ended = Arc::new(Mutex::new(Vec::new()));
    let recorded = ended.clone();
    let member = Member::start(Options::default(), move |_, body| {
        let recorded = recorded.clone();
        // A separate task reads the body, because the task that sends the response ends with the stream.
        let reading = tokio::spawn(async move {
            let read = body.collect().await.map(|body| body.to_bytes());
            recorded.lock().unwrap().push(read.ok());
        });
        async move {
            let _ = reading.await;
            text(StatusCode::OK, String::new())
        }
    })
    .await;
    (member, ended)
}

async fn pass_on(
    client: ClusterClient,
    request: Request<hyper::body::Incoming>,
) -> Result<Response<member::Body>, std::convert::Infallible> {
    let request = tributary_proxy::received(request);
    Ok(client.send_request(request, RequestIdentity::Member).await.unwrap_or_else(|_| Response::new(full(""))))
}

#[tokio::test]
async fn request_body_of_a_disconnected_client_does_not_end_normally() {
    let (member, ended) = noting().await;
    let client = member.client().await;
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let served = tokio::spawn(async move {
        let service = service_fn(move |request| pass_on(client.clone(), request));
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), service).await
    });
    near.write_all(b"POST /api HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n").await.unwrap();
    eventually("the member has its head", || member.seen().len() == 1).await;
    // The server's task is aborted, which closes the client's connection before the end of the body.
    served.abort();
    eventually("it has ended", || ended.lock().unwrap().len() == 1).await;
    assert_eq!(*ended.lock().unwrap(), [None], "the rest of it is missing");
}

/// Envoy resets a request's stream with `NO_ERROR` after Envoy's own client aborts the request.
#[tokio::test]
async fn request_body_of_a_reset_stream_does_not_end_normally() {
    let (member, ended) = noting().await;
    for (round, end) in
        [End::Reset(h2::Reason::NO_ERROR), End::Reset(h2::Reason::CANCEL), End::Marked].into_iter().enumerate()
    {
        let client = member.client().await;
        let (near, far) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            let service = service_fn(move |request| pass_on(client.clone(), request));
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.serve_connection(TokioIo::new(far), service).await
        });
        let (sender, connection) = h2::client::handshake(near).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post("http://a/api").body(()).unwrap();
        let (answer, mut body) = sender.ready().await.unwrap().send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"part"), false).unwrap();
        eventually("the member has its head", || member.seen().len() == round + 1).await;
        match end {
            End::Reset(reason) => body.send_reset(reason),
            _ => body.send_data(Bytes::new(), true).unwrap(),
        }
        eventually("it has ended", || ended.lock().unwrap().len() == round + 1).await;
        let whole = (end == End::Marked).then(|| Bytes::from_static(b"part"));
        assert_eq!(ended.lock().unwrap()[round], whole, "{end:?}");
        drop(answer);
    }
}
