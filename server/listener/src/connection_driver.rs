//! Drives a connection after its handshake: serves requests, and handles interruptions until the connection ends.

use std::future::Future;
use std::pin::Pin;

use tributary_apimachinery::WhenWoken;

use crate::interruption::{Interruption, ReportedInterruptions};
use crate::streams::Streams;

/// Polls a connection and its streams until the connection ends, and returns the connection's result. `next` waits for
/// the next interruption. `leave` makes the connection stop accepting requests.
///
/// The interruption is polled before the connection. A client that sends without a pause uses the task's whole
/// cooperative budget, so an interruption that is polled after the connection would never be ready.
///
/// # Errors
/// The reason to close the connection at once.
pub(super) async fn drive_connection<C, I>(
    mut connection: Pin<&mut C>,
    mut streams: Streams,
    next: impl Fn(ReportedInterruptions) -> I,
    leave: impl Fn(Pin<&mut C>),
) -> Result<C::Output, &'static str>
where
    C: Future,
    I: Future<Output = Interruption>,
{
    // `WhenWoken` polls the interruption only after its own wake-up, not for each frame.
    let interruption = |reported| WhenWoken::new(Box::pin(next(reported)));
    let mut reported = ReportedInterruptions::default();
    let mut interrupted = interruption(reported);
    loop {
        tokio::select! {
            biased;
            by_what = &mut interrupted => {
                if let Interruption::Closed(why) = by_what {
                    return Err(why);
                }
                // After `leave`, the connection finishes its open requests. Over HTTP/2, the client gets a GOAWAY and,
                // after a round trip, a second GOAWAY with the number of the last accepted stream.
                leave(connection.as_mut());
                reported.record_interruption(&by_what);
                interrupted = interruption(reported);
            }
            ended = streams.drive(connection.as_mut()) => return Ok(ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    use bytes::{Buf, Bytes};
    use http::Response;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use prometheus_client::metrics::gauge::Gauge;
    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio::task::{coop, yield_now};
    use tokio_util::sync::CancellationToken;
    use tributary_apimachinery::body::empty;

    use super::*;
    use crate::authentication::ConnectionAuthentication;
    use crate::goaway::RandomGoaway;
    use crate::http_settings;
    use crate::interruption::Interruptions;
    use crate::metrics::ListenerMetrics;
    use crate::outgoing::Outgoing;
    use crate::settings::UNREAD_BYTES_MAX;
    use crate::streams::StreamExecutor;
    use crate::unauthenticated_connections::UnauthenticatedConnections;
    use crate::unread::Unread;
    use crate::user_connections::UserConnections;

    const SOON: Duration = Duration::from_secs(30);

    /// The beginning of an HTTP/2 connection: the preface and an empty SETTINGS frame (RFC 9113, 3.4 and 6.5).
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    /// A PING frame (RFC 9113, 6.7).
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0flooding";

    /// A client that sends PINGs without end and reads every answer. Its bytes are always ready, until the reading task
    /// has used its cooperative budget.
    struct Flood {
        ready: Bytes,
        pings: Bytes,
        reads: Arc<AtomicUsize>,
    }

    impl Flood {
        fn new(reads: &Arc<AtomicUsize>) -> Self {
            Self { ready: PREFACE.into(), pings: PING.repeat(100).into(), reads: Arc::clone(reads) }
        }
    }

    impl AsyncRead for Flood {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            // The test's stream consumes tokio's cooperative budget, as a socket does, so one poll ends after a limited
            // number of reads.
            ready!(pin!(coop::consume_budget()).poll(cx));
            self.reads.fetch_add(1, Ordering::Relaxed);
            if self.ready.is_empty() {
                self.ready = self.pings.clone();
            }
            let bytes = self.ready.len().min(into.remaining());
            into.put_slice(&self.ready[..bytes]);
            self.ready.advance(bytes);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Flood {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn flood_of_pings_does_not_delay_a_connection_close() {
        let (reads, leaves) = (Arc::<AtomicUsize>::default(), AtomicUsize::new(0));
        let executor = StreamExecutor::default();
        let builder = http_settings::builder(executor.clone());
        let service = service_fn(async |_| Ok::<_, Infallible>(Response::new(empty())));
        let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(Flood::new(&reads)), service));
        let stop = CancellationToken::new();
        let authentication = Arc::new(ConnectionAuthentication::new(
            UnauthenticatedConnections::with_connections(8).admit(),
            UserConnections::with_connections(8),
        ));
        let (random_goaway, metrics) = (RandomGoaway::default(), ListenerMetrics::default());
        let outgoing = Outgoing::new(Unread::new(Gauge::default(), UNREAD_BYTES_MAX));
        let next = |reported: ReportedInterruptions| {
            let by = Interruptions {
                stop: &stop,
                random_goaway: &random_goaway,
                authentication: &authentication,
                outgoing: &outgoing,
            };
            by.next(reported, &metrics)
        };
        let leave = |connection: Pin<&mut _>| {
            hyper_util::server::conn::auto::UpgradeableConnection::graceful_shutdown(connection);
            leaves.fetch_add(1, Ordering::Relaxed);
        };
        let (stopping, known) = (stop.clone(), Arc::clone(&authentication));
        tokio::spawn(async move {
            // The loop lets the server read the first PINGs of the flood.
            for _ in 0..5 {
                yield_now().await;
            }
            stopping.cancel();
            for _ in 0..5 {
                yield_now().await;
            }
            known.refuse_trailers();
        });
        let connection_driver = drive_connection(connection.as_mut(), Streams::new(executor), next, leave);
        let ended = tokio::time::timeout(SOON, connection_driver).await.expect("nothing interrupts a flood");
        let Err(why) = ended else { panic!("it ends by itself") };
        assert_eq!(why, "the client sends more trailers than the limit");
        assert_eq!(leaves.load(Ordering::Relaxed), 1, "it was told to leave before");
        assert!(reads.load(Ordering::Relaxed) > 500, "several turns were full of frames");
    }
}
