//! Tests of requests that clients cancel while a cluster processes them. The access log and the traces must contain
//! these requests.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tributary_records::traces::{Tracer, TracingConfiguration};

use crate::access_log::LogFile;
use crate::fixture::{SOON, router_over, start, start_observed};

const PATH: &str = "/clusters/eu/api/v1/namespaces/default/configmaps/slow";

/// Starts a collector of spans (OTLP over gRPC). Returns its URL and the messages that it receives.
async fn collector() -> (String, UnboundedReceiver<Bytes>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", socket.local_addr().unwrap());
    let (messages, received) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = socket.accept().await {
            let messages = messages.clone();
            let service = service_fn(move |request| take(request, messages.clone()));
            let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    (endpoint, received)
}

async fn take(
    request: Request<Incoming>,
    messages: UnboundedSender<Bytes>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let _the_test_may_be_over = messages.send(request.into_body().collect().await.unwrap().to_bytes());
    let done = HeaderMap::from_iter([(header::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    // An empty gRPC message consists only of its prefix of 5 bytes.
    let frames = [Ok(Frame::data(Bytes::from_static(&[0; 5]))), Ok(Frame::trailers(done))];
    let body = StreamBody::new(futures::stream::iter(frames));
    Ok(Response::builder().header(header::CONTENT_TYPE, "application/grpc").body(body).unwrap())
}

fn says(message: &[u8], text: &str) -> bool {
    message.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn cancelled_request_has_an_access_log_line_and_trace_spans() {
    let (member, router) = router_over("eu").await;
    // The first request on a new connection to the cluster reads the cluster's uid, and `hold_requests` would block
    // this read. So a first request opens the connection before the test.
    let unobserved = start(Arc::clone(&router)).await;
    let request: Request<Empty<Bytes>> = unobserved.request(PATH).body(Empty::new()).unwrap();
    unobserved.http2().await.send_request(request).await.unwrap();
    member.control().reset_counters();
    let (endpoint, mut spans) = collector().await;
    let tracer = Tracer::start(&TracingConfiguration { endpoint, sampling_rate_per_million: 1_000_000 }).unwrap();
    let file = LogFile::open();
    let mut observers = file.observers();
    observers.tracer = Some(tracer);
    let server = start_observed(Arc::clone(&router), observers).await;
    member.control().hold_requests(true);
    let request: Request<Empty<Bytes>> = server.request(PATH).body(Empty::new()).unwrap();
    let mut client = server.http2().await;
    let answer = client.send_request(request);
    let asked = async {
        while !member.control().request_log().iter().any(|line| line.ends_with("configmaps/slow")) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = answer => panic!("it is answered: {answer:?}"),
        asked = timeout(SOON, asked) => asked.unwrap(),
    }
    // `select!` has dropped the response's future, so the client has reset the stream, and the access log contains the
    // request.
    let line = file.lines(1).await.remove(0);
    let told = ["decision", "answeredBy", "cluster", "name", "complete"].map(|field| line[field].clone());
    assert_eq!(told, [json!("forwarded"), json!("eu"), json!("eu"), json!("slow"), json!(false)], "{line}");
    assert_eq!(line.get("status"), None, "nobody was answered");
    assert_ne!(line["user"], json!(null));

    let message = timeout(SOON, spans.recv()).await.unwrap().unwrap();
    for text in ["get configmaps", PATH, "forward", "tributary.cluster", "admit"] {
        assert!(says(&message, text), "{text} in {}", String::from_utf8_lossy(&message));
    }
    assert!(!says(&message, "http.response.status_code"), "{}", String::from_utf8_lossy(&message));
    let trace_id = line["traceId"].as_str().unwrap();
    let id: Vec<u8> = (0..32).step_by(2).map(|at| u8::from_str_radix(&trace_id[at..at + 2], 16).unwrap()).collect();
    assert!(message.windows(id.len()).any(|window| window == id), "the log names the trace");
}
