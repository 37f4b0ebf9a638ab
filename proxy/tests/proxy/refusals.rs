//! Tests under paused time of an endpoint that refuses requests fast, while the other endpoint answers slowly. The
//! refusals must not give the endpoint more or fewer requests than its share.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::time::{Instant, sleep};
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::BoxError;
use tributary_proxy::{Address, BoxIo, ClientTuning, ClusterClient, Connector, EndpointSubset, RequestIdentity};

use crate::member::{Body, SendRequest, channel, get, text};
use crate::paused::ENDPOINTS;

/// A path whose requests the first endpoint refuses and the second endpoint answers.
const REFUSED: &str = "/api/v1/secrets";

const ANSWERED: &str = "/api/v1/pods";

const AT_ONCE: Duration = Duration::from_millis(1);

/// Usual duration of the second endpoint's responses.
const USUAL: Duration = Duration::from_millis(10);

/// Time after which the proxy ignores the latency of an endpoint's last response.
const FORGOTTEN: Duration = Duration::from_secs(11);

/// Duration of a measurement. In this time the clients send thousands of requests.
const MEASURED: Duration = Duration::from_secs(1);

/// A client of two endpoints. The first endpoint refuses some requests fast, and the second endpoint answers them
/// slowly.
struct Scene {
    client: ClusterClient,
    /// For each request, the index of the endpoint and the path.
    seen: Arc<Mutex<Vec<(usize, String)>>>,
}

#[derive(Clone, Copy)]
struct Behavior {
    error: StatusCode,
    usual: [Duration; 2],
}

impl Scene {
    async fn new(error: StatusCode) -> Self {
        Self::of(Behavior { error, usual: [USUAL, USUAL] }).await
    }

    async fn of(behavior: Behavior) -> Self {
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let recorded = seen.clone();
        let connector = Connector::new(tower::service_fn(move |uri: Uri| {
            let at = ENDPOINTS.iter().position(|host| uri.host() == Some(host)).unwrap();
            let (near, far) = tokio::io::duplex(1 << 20);
            tokio::spawn(serve(at, behavior, recorded.clone(), far));
            async move { Ok::<BoxIo, BoxError>(Box::new(near)) }
        }));
        let [first, second] = ENDPOINTS.map(|host| format!("http://{host}").parse::<Uri>().unwrap());
        let (name, further) = (ClusterName::new("c1").unwrap(), [Address::from(second)]);
        let (config, tuning) = (kube::Config::new(first), ClientTuning::default());
        let client = ClusterClient::connect_to_all_through(connector, name, config, &further, tuning).await.unwrap();
        let scene = Self { client, seen };
        // After these requests, the proxy has measured the latency of both endpoints. Equally fast endpoints are used
        // alternately.
        for _ in 0..4 {
            assert_eq!(scene.send(get(ANSWERED)).await, StatusCode::OK);
        }
        scene
    }

    async fn send(&self, request: Request<Body>) -> StatusCode {
        let answer = self.client.send_request(request, RequestIdentity::Member).await.unwrap();
        let status = answer.status();
        answer.into_body().collect().await.unwrap();
        status
    }

    /// Runs `readers` parallel sequences of GETs for a path, for the duration of a measurement.
    async fn read(&self, readers: usize, path: &str) {
        self.read_for(MEASURED, readers, path).await;
    }

    async fn read_for(&self, measured: Duration, readers: usize, path: &str) {
        let until = Instant::now() + measured;
        let reading = (0..readers).map(|_| async {
            while Instant::now() < until {
                self.send(get(path)).await;
            }
        });
        join_all(reading).await;
    }

    /// Returns the first endpoint's percentage of the requests for a path.
    fn part(&self, path: &str) -> usize {
        let seen = self.seen.lock();
        let of_path = || seen.iter().filter(|(_, requested)| requested == path);
        let (first, all) = (of_path().filter(|(at, _)| *at == 0).count(), of_path().count());
        assert!(all > 100, "{all} requests");
        first * 100 / all
    }
}

async fn serve(at: usize, behavior: Behavior, recorded: Arc<Mutex<Vec<(usize, String)>>>, stream: DuplexStream) {
    let service = service_fn(move |request: Request<Incoming>| {
        recorded.lock().push((at, request.uri().path().to_owned()));
        answer(at, behavior, request)
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ended = server.serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(at: usize, behavior: Behavior, request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
    let Behavior { error, usual } = behavior;
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch"));
    if at == 0 && request.uri().path() == REFUSED {
        sleep(AT_ONCE).await;
        let mut refusal = text(error, "refused".to_owned());
        if error == StatusCode::TOO_MANY_REQUESTS && !is_watch {
            refusal.headers_mut().insert(RETRY_AFTER, "7".parse()?);
        }
        return Ok(refusal);
    }
    if !is_watch {
        // Fast responses to probes keep the endpoint healthy.
        let is_read = [REFUSED, ANSWERED].contains(&request.uri().path());
        sleep(if is_read { usual[at] } else { AT_ONCE }).await;
        return Ok(text(StatusCode::OK, "here".to_owned()));
    }
    let (sender, body) = channel();
    sender.send("{}\n".into())?;
    tokio::spawn(async move { sender.closed().await });
    Ok(Response::new(body))
}

#[tokio::test(start_paused = true)]
async fn endpoint_with_fast_refusals_gets_at_most_half_of_the_requests() {
    for error in [StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS, StatusCode::INTERNAL_SERVER_ERROR] {
        let scene = Scene::new(error).await;
        scene.read(16, REFUSED).await;
        let part = scene.part(REFUSED);
        // If the proxy compared only the numbers of requests in flight, the first endpoint would get 90 % of the
        // requests. The proxy sends a read that gets 429 again to the second endpoint, so the second endpoint gets an
        // additional request.
        assert!((25..=53).contains(&part), "{part} % of what is answered {error}");
    }
}

/// Before the refusals begin, the first endpoint is faster than the second endpoint, which is in a different zone.
/// After some seconds with refusals only, the proxy must forget the latency of the first endpoint.
#[tokio::test(start_paused = true)]
async fn fast_endpoint_that_starts_to_refuse_gets_half_of_the_requests() {
    let usual = [Duration::from_millis(2), USUAL];
    let scene = Scene::of(Behavior { error: StatusCode::FORBIDDEN, usual }).await;
    scene.read_for(FORGOTTEN, 1, REFUSED).await;
    scene.seen.lock().clear();
    scene.read(16, REFUSED).await;
    let part = scene.part(REFUSED);
    assert!((40..=60).contains(&part), "{part} %");
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_refuses_one_resource_still_gets_half_of_all_requests() {
    for error in [StatusCode::FORBIDDEN, StatusCode::INTERNAL_SERVER_ERROR] {
        let scene = Scene::new(error).await;
        tokio::join!(scene.read(8, REFUSED), scene.read(8, ANSWERED));
        let parts = [REFUSED, ANSWERED].map(|path| scene.part(path));
        assert!((40..=55).contains(&parts[0]), "{parts:?} % where the former is answered {error}");
        assert!((40..=60).contains(&parts[1]), "{parts:?} % where the former is answered {error}");
    }
}

/// One client makes the first endpoint refuse a thousand requests per second. A policy restricts this client to the
/// first endpoint.
#[tokio::test(start_paused = true)]
async fn refusals_to_one_client_do_not_move_other_clients_to_another_endpoint() {
    let scene = Scene::new(StatusCode::FORBIDDEN).await;
    let until = Instant::now() + MEASURED;
    let first = EndpointSubset::new(&[format!("http://{}", ENDPOINTS[0])]);
    let hostile = async {
        while Instant::now() < until {
            let mut request = get(REFUSED);
            request.extensions_mut().insert(first.clone());
            assert_eq!(scene.send(request).await, StatusCode::FORBIDDEN);
        }
    };
    tokio::join!(hostile, scene.read(16, ANSWERED));
    let refused = scene.seen.lock().iter().filter(|(_, path)| path == REFUSED).count();
    assert!(refused > 300, "{refused}");
    // The hostile client always has one request in flight at the first endpoint. The endpoint's load includes this
    // request, but no refused request.
    let part = scene.part(ANSWERED);
    assert!((40..=60).contains(&part), "{part} %");
}

/// One client sends 200 requests per second that the fast endpoint answers with 403 or 404.
#[tokio::test(start_paused = true)]
async fn refusals_to_one_client_do_not_move_other_clients_to_a_slow_endpoint() {
    let measured = Duration::from_secs(4);
    for error in [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN] {
        let usual = [Duration::from_millis(5), Duration::from_secs(2)];
        let scene = Scene::of(Behavior { error, usual }).await;
        let until = Instant::now() + measured;
        let first = EndpointSubset::new(&[format!("http://{}", ENDPOINTS[0])]);
        let hostile = async {
            while Instant::now() < until {
                let mut request = get(REFUSED);
                request.extensions_mut().insert(first.clone());
                assert_eq!(scene.send(request).await, error);
                sleep(Duration::from_millis(4)).await;
            }
        };
        tokio::join!(hostile, scene.read_for(measured, 20, ANSWERED));
        let part = scene.part(ANSWERED);
        assert!(part >= 90, "{part} % where the former is answered {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_endpoint_gets_few_requests() {
    let scene = Scene::of(Behavior { error: StatusCode::FORBIDDEN, usual: [USUAL, Duration::from_secs(1)] }).await;
    scene.read_for(Duration::from_secs(3), 16, ANSWERED).await;
    scene.seen.lock().clear();
    scene.read_for(Duration::from_secs(3), 16, ANSWERED).await;
    let (part, all) = (scene.part(ANSWERED), scene.seen.lock().len());
    // If the proxy compared only the numbers of requests in flight, half of the readers would always wait for the slow
    // endpoint, and all readers would send only 2,400 requests.
    assert!(part >= 99 && all > 4_000, "{part} % of {all}");
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_refuses_watches_does_not_get_every_new_watch() {
    let scene = Scene::new(StatusCode::TOO_MANY_REQUESTS).await;
    let watch = async |path: &str| {
        let request = get(&format!("{path}?watch=1"));
        scene.client.send_request(request, RequestIdentity::Member).await.unwrap()
    };
    let mut watches = Vec::new();
    for _ in 0..200 {
        let answer = watch(REFUSED).await;
        if answer.status() == StatusCode::OK {
            watches.push(answer.into_body());
        }
        // The test's clients retry after a second.
        sleep(Duration::from_secs(1)).await;
    }
    assert!((45..=55).contains(&scene.part(REFUSED)), "{} %", scene.part(REFUSED));
    // After ten seconds without refusals, the endpoint gets new watches until both endpoints have the same number.
    sleep(Duration::from_secs(10)).await;
    for _ in 0..20 {
        watches.push(watch(ANSWERED).await.into_body());
    }
    let outstanding: Vec<_> = scene.client.endpoints().iter().map(|endpoint| endpoint.outstanding).collect();
    assert_eq!(outstanding, [20, watches.len() - 20]);
}
