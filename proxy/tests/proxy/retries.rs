//! Tests of retries and of their budget. The proxy retries requests, including their bodies, that the member has
//! certainly not processed. It also retries reads that an overloaded endpoint refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tower::service_fn as tower_service_fn;
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::{Body, BoxError};
use tributary_proxy::{
    BoxIo, BreakerTuning, ClientTuning, ClusterClient, ForwardError, Impersonation, RequestIdentity, Sent,
};

use crate::endpoints::{Gate, client, client_with, requests};
use crate::member::{Member, Options, SendRequest, eventually, full, get, read, text};

/// How a server refuses a request after its head and a part of its body.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    /// The member sends a GOAWAY frame: streams up to `last` were processed.
    GoAway {
        last: u32,
        code: u32,
    },
    Reset {
        code: u32,
    },
}

impl Refusal {
    /// Returns the bytes of the GOAWAY or RST_STREAM frame (RFC 9113 §6.4 and §6.8).
    fn frame(self, stream: u32) -> Vec<u8> {
        match self {
            Self::GoAway { last, code } => {
                let mut frame = vec![0, 0, 8, 7, 0, 0, 0, 0, 0];
                frame.extend(last.to_be_bytes());
                frame.extend(code.to_be_bytes());
                frame
            }
            Self::Reset { code } => {
                let mut frame = vec![0, 0, 4, 3, 0];
                frame.extend(stream.to_be_bytes());
                frame.extend(code.to_be_bytes());
                frame
            }
        }
    }
}

/// A member that refuses requests on its first connections, with handwritten HTTP/2 frames, and answers on later
/// connections.
struct RefusingMember {
    client: ClusterClient,
    refused: Arc<AtomicUsize>,
    processed: Arc<Mutex<Vec<String>>>,
}

impl RefusingMember {
    /// Starts a member whose first `connections` connections refuse requests.
    async fn refuse_first_connections(connections: usize, refusal: Refusal) -> Self {
        let refused = Arc::new(AtomicUsize::new(0));
        let processed = Arc::new(Mutex::new(Vec::new()));
        let (refusals, recorded, dialed) = (refused.clone(), processed.clone(), Arc::new(AtomicUsize::new(0)));
        let connector = BoxCloneSyncService::new(tower_service_fn(move |_: http::Uri| {
            let (near, far) = tokio::io::duplex(1 << 20);
            let (refusals, recorded) = (refusals.clone(), recorded.clone());
            match dialed.fetch_add(1, Ordering::SeqCst) < connections {
                true => drop(tokio::spawn(refuse(far, refusal, refusals))),
                false => drop(tokio::spawn(serve(far, recorded))),
            }
            async move { Ok::<BoxIo, BoxError>(Box::new(near)) }
        }));
        let config = kube::Config::new("http://member.example".parse().unwrap());
        let name = ClusterName::new("c1").unwrap();
        let client = ClusterClient::connect_through(connector, name, config, ClientTuning::default()).await.unwrap();
        Self { client, refused, processed }
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, ForwardError> {
        self.client.send_request(request, RequestIdentity::Member).await
    }

    fn refused(&self) -> usize {
        self.refused.load(Ordering::SeqCst)
    }

    fn processed(&self) -> Vec<String> {
        self.processed.lock().clone()
    }
}

/// Refuses each request on a connection, after its head and the first DATA frame of its body.
async fn refuse(mut io: DuplexStream, refusal: Refusal, refusals: Arc<AtomicUsize>) {
    let mut preface = [0; 24];
    io.read_exact(&mut preface).await.unwrap();
    io.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    let mut head = [0; 9];
    while io.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length.try_into().unwrap()];
        io.read_exact(&mut payload).await.unwrap();
        let (is_data, is_head, is_last) = (kind == 0, kind == 1, flags & 1 != 0);
        if is_data || (is_head && is_last) {
            refusals.fetch_add(1, Ordering::SeqCst);
            io.write_all(&refusal.frame(stream)).await.unwrap();
            if matches!(refusal, Refusal::GoAway { .. }) {
                return;
            }
        }
    }
}

async fn serve(io: DuplexStream, processed: Arc<Mutex<Vec<String>>>) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let processed = processed.clone();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            processed.lock().push(body.clone());
            Ok::<_, std::convert::Infallible>(Response::new(full(body)))
        }
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(io), service).await;
}

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

fn post() -> Request<Body> {
    Request::post("/api/v1/pods").body(full("object")).unwrap()
}

#[tokio::test]
async fn unprocessed_write_is_resent_with_its_body() {
    for refusal in [
        Refusal::GoAway { last: 0, code: NO_ERROR },
        Refusal::GoAway { last: 0, code: ENHANCE_YOUR_CALM },
        Refusal::Reset { code: REFUSED_STREAM },
    ] {
        let scene = RefusingMember::refuse_first_connections(1, refusal).await;
        if let Refusal::Reset { .. } = refusal {
            // After a reset, the connection stays open. So the retries use the same connection, and the member refuses
            // them, too.
            let error = scene.send(post()).await.unwrap_err();
            assert_eq!((error.sent(), error.status_code()), (Sent::No, StatusCode::SERVICE_UNAVAILABLE), "{refusal:?}");
            assert_eq!((scene.refused(), scene.processed().len()), (3, 0), "twice more, {refusal:?}");
            continue;
        }
        let response = scene.send(post()).await.unwrap_or_else(|error| panic!("{refusal:?}: {error}"));
        assert_eq!(read(response).await, "object");
        assert_eq!((scene.refused(), scene.processed()), (1, vec!["object".to_owned()]), "{refusal:?}");
        assert_eq!(scene.client.retries().retries, 1);
    }
}

#[tokio::test]
async fn request_that_may_have_been_processed_is_resent_only_if_it_is_a_read() {
    for refusal in [
        Refusal::GoAway { last: 1, code: NO_ERROR },
        Refusal::GoAway { last: 1, code: INTERNAL_ERROR },
        Refusal::Reset { code: INTERNAL_ERROR },
    ] {
        let scene = RefusingMember::refuse_first_connections(1, refusal).await;
        let error = scene.send(post()).await.unwrap_err();
        assert_eq!(error.sent(), Sent::Maybe, "{refusal:?}: {error}");
        assert_eq!((scene.refused(), scene.processed().len()), (1, 0), "{refusal:?}");
        if let Refusal::Reset { .. } = refusal {
            continue;
        }
        let scene = RefusingMember::refuse_first_connections(1, refusal).await;
        assert_eq!(scene.send(get("/api")).await.unwrap().status(), StatusCode::OK, "{refusal:?}");
        assert_eq!((scene.refused(), scene.processed().len()), (1, 1), "{refusal:?}");
    }
}

#[tokio::test]
async fn member_that_refuses_all_requests_gets_few_retries() {
    let scene = RefusingMember::refuse_first_connections(usize::MAX, Refusal::Reset { code: REFUSED_STREAM }).await;
    for _ in 0..200 {
        assert_eq!(scene.send(get("/api")).await.unwrap_err().sent(), Sent::No);
    }
    let again = scene.refused() - 200;
    // The retry budget depends on the requests of the last 10 s. On a busy machine, the test may take longer than 10 s,
    // so the number of retries varies.
    assert!((40..=120).contains(&again), "{again} were sent again");
    let retries = scene.client.retries();
    assert_eq!(retries.retries, again as u64);
    assert!(retries.refused > 0, "{retries:?}");
}

/// A member that answers with this status and a Retry-After if the request's authority is in `authorities`, and with
/// 200 if it is not.
async fn limiting(status: StatusCode, authorities: Arc<Mutex<Vec<String>>>) -> Member {
    Member::start(Options::default(), move |seen, _| {
        let is_limited = authorities.lock().iter().any(|limited| seen.uri.authority().unwrap().as_str() == limited);
        async move {
            if !is_limited {
                return text(StatusCode::OK, "here".to_owned());
            }
            let mut answer = text(status, "busy".to_owned());
            answer.headers_mut().insert(http::header::RETRY_AFTER, "7".parse().unwrap());
            answer
        }
    })
    .await
}

#[tokio::test]
async fn read_refused_by_a_busy_endpoint_uses_another_endpoint() {
    // The status code of API Priority and Fairness (429), and that of a kube-apiserver during its shutdown (503).
    for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
        reads_are_asked_of_another(status).await;
    }
}

async fn reads_are_asked_of_another(status: StatusCode) {
    let limited = Arc::new(Mutex::new(Vec::new()));
    let member = limiting(status, limited.clone()).await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    let ask = || client.send_request(get("/api"), RequestIdentity::Member);
    limited.lock().push(gates[0].url().authority().unwrap().to_string());
    for _ in 0..10 {
        assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
    }
    let [first, second] = requests(&client);
    assert!(first > 0 && second == 10, "{first} and {second}");
    // The endpoint may have processed a part of a write, so the proxy does not retry the write. The client gets the
    // error and may retry.
    let mut refused = 0;
    for _ in 0..20 {
        let answer = client.send_request(post(), RequestIdentity::Member).await.unwrap();
        refused += usize::from(answer.status() == status);
        read(answer).await;
    }
    assert!((1..20).contains(&refused), "{refused} of 20: some go to each, and none to both");
    assert_eq!(requests(&client).iter().sum::<u64>(), first + second + 20);
    // If both endpoints are overloaded, the client gets the member's response with Retry-After.
    limited.lock().push(gates[1].url().authority().unwrap().to_string());
    let answer = ask().await.unwrap();
    assert_eq!(answer.status(), status);
    assert_eq!(answer.headers()[http::header::RETRY_AFTER], "7");
}

fn busy() -> Response<Body> {
    let mut answer = text(StatusCode::TOO_MANY_REQUESTS, "busy".to_owned());
    answer.headers_mut().insert(http::header::RETRY_AFTER, "7".parse().unwrap());
    answer
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    Full,
    /// The endpoint refuses connections, but the proxy has not detected this yet.
    Gone,
    BreaksOff,
}

#[tokio::test]
async fn response_429_reaches_the_client_if_no_other_endpoint_succeeds() {
    for other in [Other::Full, Other::Gone, Other::BreaksOff] {
        let authority = Arc::new(Mutex::new(String::new()));
        let first = authority.clone();
        let member = Member::start(Options::default(), move |seen, _| {
            let is_first = seen.uri.authority().unwrap().as_str() == *first.lock();
            async move {
                match seen.uri.path() {
                    "/slow" => std::future::pending().await,
                    _ if is_first => busy(),
                    _ => std::panic::resume_unwind(Box::new(())),
                }
            }
        })
        .await;
        let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
        *authority.lock() = gates[0].url().authority().unwrap().to_string();
        let breaker = BreakerTuning { max_in_flight_per_endpoint: Some(1), ..BreakerTuning::default() };
        let tuning = ClientTuning { breaker, ..ClientTuning::default() };
        let client = client_with(tuning, &member, [&gates[0], &gates[1]]).await;
        let mut slow = None;
        match other {
            Other::Full => {
                let asking = client.clone();
                let only = tributary_proxy::EndpointSubset::new(&[gates[1].url().to_string()]);
                let mut request = get("/slow");
                request.extensions_mut().insert(only);
                slow = Some(tokio::spawn(async move { asking.send_request(request, RequestIdentity::Member).await }));
                eventually("it is in flight", || member.seen().len() == 1).await;
            }
            Other::Gone => gates[1].close().await,
            Other::BreaksOff => {}
        }
        // The second endpoint is at its limit, so the first endpoint gets every request.
        let answer = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "{other:?}");
        assert_eq!(answer.headers()[http::header::RETRY_AFTER], "7", "{other:?}");
        assert_eq!(read(answer).await, "busy", "{other:?}");
        let at_first = |seen: &&crate::member::Seen| seen.uri.authority() == gates[0].url().authority();
        assert_eq!(member.seen().iter().filter(at_first).count(), 1, "it is not asked again, {other:?}");
        if let Some(slow) = slow {
            slow.abort();
        }
    }
}

#[tokio::test]
async fn read_is_sent_at_most_three_times() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let attempt_count = attempts.clone();
    let member = Member::start(Options::default(), move |_, _| {
        let before = attempt_count.fetch_add(1, Ordering::SeqCst);
        async move {
            match before {
                0 | 1 => std::panic::resume_unwind(Box::new(())),
                2 => busy(),
                _ => text(StatusCode::OK, "here".to_owned()),
            }
        }
    })
    .await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    let answer = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert_eq!((answer.status(), attempts.load(Ordering::SeqCst)), (StatusCode::TOO_MANY_REQUESTS, 3));
}

#[tokio::test]
async fn retried_request_equals_the_first_attempt() {
    let path = "/api/v1/pods?labelSelector=a%3Db";
    for is_busy in [false, true] {
        let attempts = AtomicUsize::new(0);
        let member = Member::start(Options::default(), move |seen, _| {
            // After a reset, Tributary also sends its own requests, which have other paths. The test must not count
            // them.
            let is_first = seen.uri.path() == "/api/v1/pods" && attempts.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                match (is_first, is_busy) {
                    (true, false) => std::panic::resume_unwind(Box::new(())),
                    (true, true) => busy(),
                    (false, _) => text(StatusCode::OK, "here".to_owned()),
                }
            }
        })
        .await;
        let gates = [Gate::to(&member).await, Gate::to(&member).await];
        let mut config = member.config();
        config.cluster_url = gates[0].url();
        config.auth_info.token = Some("own".to_owned().into());
        let (name, tuning) = (ClusterName::new("c1").unwrap(), ClientTuning::default());
        let client = ClusterClient::connect_to_all(name, config, &[gates[1].url().into()], tuning).await.unwrap();
        let mut request = get(path);
        for (name, value) in [("accept", "application/json"), ("te", "trailers"), ("traceparent", "00-a")] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let user = Impersonation::new("alice", ["dev", "ops"], None, []).unwrap();
        let answer = client.send_request(request, RequestIdentity::Impersonate(user)).await.unwrap();
        assert_eq!(read(answer).await, "here", "busy: {is_busy}");
        let mut seen = member.seen();
        seen.retain(|seen| seen.uri.path() == "/api/v1/pods");
        let [first, second] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!((&first.method, &first.headers), (&second.method, &second.headers), "busy: {is_busy}");
        for seen in [first, second] {
            assert_eq!(seen.uri.path_and_query().unwrap().as_str(), path);
            let headers = ["authorization", "impersonate-user", "te", "traceparent"].map(|name| seen.all(name));
            assert_eq!(headers, [["Bearer own"], ["alice"], ["trailers"], ["00-a"]]);
            assert_eq!(seen.all("impersonate-group"), ["dev", "ops"]);
        }
    }
}

#[tokio::test]
async fn retries_after_responses_429_use_at_most_half_of_the_retry_budget() {
    let member = Member::start(Options::default(), |_, _| async { busy() }).await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    for _ in 0..100 {
        assert_eq!(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap().status().as_u16(), 429);
    }
    let retries = client.retries();
    // The budget allows retries of a fifth of the requests, and 20 more. If the test takes more than 10 s, a few more
    // retries are possible.
    assert!((20..=30).contains(&retries.retries), "{retries:?}");
    let before = requests(&client).iter().sum::<u64>();
    client.send_request(get("/api/v1/pods?watch=1"), RequestIdentity::Member).await.unwrap();
    assert_eq!(requests(&client).iter().sum::<u64>(), before + 1, "what lasts is asked of nobody else");
}
