//! Tests of HTTP/1.1 responses that are sent before the request's body has arrived. Either the connection stays open,
//! or the response has `Connection: close`.

use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use tributary_apimachinery::body::{Body, full};
use tributary_router::{Answer, RequestContext};
use tributary_server::handler::Handler;

use crate::fixture::{SOON, Server, default_handler_methods, start};

/// A handler that answers before the end of a body. The handler ignores the request's body, reads a part of it, or
/// moves it to a task.
struct Early;

impl Early {
    async fn respond(&self, request: Request<Body>) -> Response<Body> {
        let (head, mut body) = request.into_parts();
        match head.uri.path() {
            "/whole" => drop(body.collect().await),
            "/part" => drop(body.frame().await),
            "/task" => {
                tokio::spawn(async move {
                    sleep(Duration::from_secs(2)).await;
                    drop(body);
                });
            }
            _ => drop(body),
        }
        Response::new(full("early"))
    }
}

impl Handler for Early {
    async fn handle(&self, request: Request<Body>, _context: &RequestContext) -> Answer {
        self.respond(request).await.into()
    }

    default_handler_methods!();
}

fn post(server: &Server, path: &str, headers: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n{headers}\r\n\r\n", server.token)
}

/// Sends the parts of a request, 100 ms apart, and then a complete last request. Returns the text of all responses.
async fn exchange(server: &Server, pieces: &[&str]) -> String {
    let stream = server.connect(&rustls::version::TLS13, "http/1.1").await;
    let (mut from, mut to) = tokio::io::split(stream);
    let last = "GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let send = async {
        for piece in pieces.iter().copied().chain([last]) {
            // The server may have closed the connection already, so a failed write is ignored.
            let _sent = to.write_all(piece.as_bytes()).await;
            let _sent = to.flush().await;
            sleep(Duration::from_millis(100)).await;
        }
    };
    let mut answers = Vec::new();
    let (_end, ()) = tokio::join!(timeout(SOON, from.read_to_end(&mut answers)), send);
    String::from_utf8_lossy(&answers).into_owned()
}

/// Returns the status code of each response, and whether the response closes the connection.
fn answered(answers: &str) -> Vec<(&str, bool)> {
    let each = answers.split("HTTP/1.1 ").skip(1);
    each.map(|answer| (&answer[..3], answer.contains("connection: close\r\n"))).collect()
}

#[tokio::test]
async fn connection_stays_open_if_a_small_body_follows_the_response() {
    let server = start(Early).await;
    let both = [("200", false), ("401", true)];
    for path in ["/nothing", "/part", "/whole"] {
        for (headers, body) in [
            ("Content-Length: 3", &["abc"][..]),
            ("Content-Length: 6", &["abc", "def"]),
            ("Transfer-Encoding: chunked", &["3\r\nabc\r\n", "0\r\n\r\n"]),
        ] {
            let head = post(&server, path, headers);
            let pieces: Vec<_> = [&*head].into_iter().chain(body.iter().copied()).collect();
            let answers = exchange(&server, &pieces).await;
            assert_eq!(answered(&answers), both, "{path} {headers}: {answers}");
            let at_once = exchange(&server, &[&pieces.concat()]).await;
            assert_eq!(answered(&at_once), both, "{path} {headers} at once: {at_once}");
        }
    }
    let large = "x".repeat(200 << 10);
    let head = post(&server, "/nothing", &format!("Content-Length: {}", large.len()));
    assert_eq!(answered(&exchange(&server, &[&head, &large]).await), both, "within Go's 256 KiB");
}

#[tokio::test]
async fn early_response_with_an_unread_body_closes_the_connection() {
    let server = start(Early).await;
    let closed = [("200", true)];
    for (path, headers, body) in [
        ("/nothing", "Content-Length: 300000", ""),
        ("/nothing", "Content-Length: 3\r\nExpect: 100-continue", ""),
        ("/task", "Content-Length: 3", "abc"),
        // The body of this request stays incomplete, so the server must answer before the end of the body.
        ("/nothing", "Content-Length: 3", "ab"),
        ("/nothing", "Transfer-Encoding: chunked", "3\r\nabc\r\n"),
    ] {
        let begun = Instant::now();
        let head = post(&server, path, headers);
        let answers = exchange_without_last(&server, &[&head, body]).await;
        assert_eq!(answered(&answers), closed, "{path} {headers}: {answers}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{path} {headers}: {:?}", begun.elapsed());
    }
}

/// Sends the parts of a request, and reads the response until the end of the connection.
async fn exchange_without_last(server: &Server, pieces: &[&str]) -> String {
    let mut stream = server.connect(&rustls::version::TLS13, "http/1.1").await;
    for piece in pieces {
        stream.write_all(piece.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        sleep(Duration::from_millis(100)).await;
    }
    let mut answers = Vec::new();
    // If bytes of the body are unread, the server resets the connection after the response, so a read error is ignored.
    let _end = timeout(SOON, stream.read_to_end(&mut answers)).await.expect("the connection is closed");
    String::from_utf8_lossy(&answers).into_owned()
}

/// The listener answers 401 before the handler runs. If an authenticated user has sent requests on the connection
/// before, the connection stays open.
#[tokio::test]
async fn unauthenticated_response_closes_a_connection_without_authenticated_requests() {
    let server = start(Early).await;
    let known = post(&server, "/whole", "Content-Length: 0");
    let refused = "POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n";
    let answers = exchange(&server, &[&known, refused, "abc"]).await;
    assert_eq!(answered(&answers), [("200", false), ("401", false), ("401", true)], "{answers}");
    let answers = exchange_without_last(&server, &[refused]).await;
    assert_eq!(answered(&answers), [("401", true)], "{answers}");
}
