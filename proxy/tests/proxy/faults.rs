//! Property tests with random faults of a member's connections. The member processes each write at most once, and never
//! an incomplete body. The client gets no response that contradicts the processing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::DuplexStream;
use tower::util::BoxCloneSyncService;
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::BoxError;
use tributary_proxy::{BoxIo, ClientTuning, ClusterClient, RequestIdentity, Sent};

use crate::member::SendRequest;
use crate::member::channel;

/// The requests that the member has processed: for each number in a body, the lengths of all bodies with this number.
type ProcessedWrites = Arc<Mutex<BTreeMap<usize, Vec<usize>>>>;

/// Accepts requests, and applies a random fault to each request or its connection.
async fn serve(io: DuplexStream, seed: u64, processed: ProcessedWrites) {
    let mut random = StdRng::seed_from_u64(seed);
    let Ok(mut connection) = h2::server::handshake(io).await else { return };
    while let Some(Ok((request, mut respond))) = connection.accept().await {
        let processed = processed.clone();
        // Faults are rare, because most of them end all streams of the connection.
        let fault = random.random_range(0..100);
        let reason = [h2::Reason::NO_ERROR, h2::Reason::CANCEL, h2::Reason::INTERNAL_ERROR][fault % 3];
        match fault {
            6..16 => {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
                continue;
            }
            1 => connection.graceful_shutdown(),
            2 => connection.abrupt_shutdown(reason),
            3 => return,
            _ => {}
        }
        let patience = Duration::from_millis(random.random_range(0..3));
        tokio::spawn(async move {
            let Some((number, length)) = read(request.into_body()).await else { return };
            processed.lock().entry(number).or_default().push(length);
            tokio::time::sleep(patience).await;
            match fault {
                4..6 => respond.send_reset(reason),
                _ => drop(respond.send_response(Response::new(()), true)),
            }
        });
    }
}

/// Returns the number at the beginning of a body, and the body's length. `None` if the body is incomplete.
async fn read(mut body: h2::RecvStream) -> Option<(usize, usize)> {
    let mut whole = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        let _ = body.flow_control().release_capacity(data.len());
        whole.extend_from_slice(&data);
    }
    let number = whole.split(|byte| *byte == b' ').next()?;
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, whole.len()))
}

#[tokio::test]
async fn write_is_processed_at_most_once_under_random_faults() {
    const WRITES: usize = 1_500;
    let (processed, dialed) = (ProcessedWrites::default(), Arc::new(AtomicUsize::new(0)));
    let (recorded, dial_count) = (processed.clone(), dialed.clone());
    let connector = BoxCloneSyncService::new(tower::service_fn(move |_: http::Uri| {
        let (near, far) = tokio::io::duplex(1 << 14);
        let number = dial_count.fetch_add(1, Ordering::SeqCst) as u64;
        tokio::spawn(serve(far, number, recorded.clone()));
        async move { Ok::<BoxIo, BoxError>(Box::new(near)) }
    }));
    let config = kube::Config::new("http://member.example".parse().unwrap());
    let name = ClusterName::new("c1").unwrap();
    let client = ClusterClient::connect_through(connector, name, config, ClientTuning::default()).await.unwrap();
    let outcomes: Vec<_> = stream::iter(0..WRITES)
        .map(|number| {
            let client = client.clone();
            async move {
                let mut random = StdRng::seed_from_u64(number as u64);
                // Some bodies are longer than the part that the proxy keeps for a retry, and longer than a stream's
                // window.
                let pieces = random.random_range(0..4) * random.random_range(0..12);
                let (sender, body) = channel();
                let begin = Bytes::from(format!("{number} "));
                let length = begin.len() + pieces * 8_000;
                let sending = async {
                    sender.send(begin).unwrap();
                    for _ in 0..pieces {
                        tokio::task::yield_now().await;
                        let _is_taken = sender.send(Bytes::from_static(&[b'x'; 8_000]));
                    }
                    drop(sender);
                };
                let request = Request::post("/api/v1/pods").body(body).unwrap();
                let forward = async {
                    let forwarded = client.send_request(request, RequestIdentity::Member);
                    match number % 7 {
                        0 => tokio::time::timeout(Duration::from_millis(1), forwarded).await.ok(),
                        _ => Some(forwarded.await),
                    }
                };
                let (outcome, ()) = futures::join!(forward, sending);
                (
                    number,
                    length,
                    outcome.map(|answer| answer.map(|answer| answer.status()).map_err(|error| error.sent())),
                )
            }
        })
        .buffer_unordered(16)
        .collect()
        .await;
    let (mut answered, mut unsent) = (0, 0);
    for (number, length, outcome) in &outcomes {
        let processed = processed.lock().get(number).cloned().unwrap_or_default();
        assert!(processed.len() <= 1, "{number} was carried out {} times: {outcome:?}", processed.len());
        assert!(processed.iter().all(|whole| whole == length), "{number} of {length}: {processed:?}, {outcome:?}");
        match outcome {
            Some(Ok(status)) => {
                assert_eq!((*status, processed.len()), (StatusCode::OK, 1), "{number}");
                answered += 1;
            }
            Some(Err(Sent::No)) => {
                assert!(processed.is_empty(), "{number} was carried out: {outcome:?}");
                unsent += 1;
            }
            Some(Err(Sent::Maybe)) | None => {}
        }
    }
    let (retries, connections) = (client.retries(), dialed.load(Ordering::SeqCst));
    assert!(
        answered > WRITES / 3 && retries.retries > 20 && connections > 20,
        "{answered} {unsent} {retries:?} {connections}"
    );
}
