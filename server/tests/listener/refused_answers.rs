//! Tests of responses that the listener withholds because the unread responses of clients reach their memory limit. The
//! audit log and the access log contain the 429 that the client gets.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::join_all;
use http::StatusCode;
use serde_json::json;
use tributary_records::audit::AuditMode;

use crate::access_log::LogFile;
use crate::audit::{auditor, events};
use crate::fixture::{SOON, start_with_front};
use crate::slow_readers::{Talker, get, reluctant, until};

/// Returns the number of 429 responses in the audit log.
fn audited(log: &Path) -> usize {
    let is_refusal = |event: &serde_json::Value| event["responseStatus"]["code"] == json!(429);
    events(log).iter().filter(|event| is_refusal(event)).count()
}

#[tokio::test]
async fn withheld_response_is_logged_and_audited_as_429() {
    const WAITING: usize = 60;
    let (talker, file, folder) = (Talker::default(), LogFile::open(), tempfile::tempdir().unwrap());
    let log = folder.path().join("audit.log");
    let auditor = auditor(folder.path(), log.clone(), AuditMode::Blocking).await;
    let furnished = |front: tributary_server::front::Front<_>| front.observed(file.observers()).audited(auditor);
    let server = start_with_front(Arc::default(), talker.clone(), furnished).await;
    let mut stuck = reluctant(&server).await;
    let asked: Vec<_> = (0..WAITING).map(|_| stuck.send_request(get(&server, "/late"))).collect();
    let asked = tokio::spawn(join_all(asked));
    until(|| talker.0.late.load(Ordering::SeqCst) == WAITING).await;
    talker.0.go.notify_waiters();
    let answers = tokio::time::timeout(SOON, asked).await.expect("all are answered").unwrap();
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    let refused = answers.iter().filter(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS).count();
    assert!(refused > WAITING / 2, "{refused} find no room");
    // All other responses have no line in the access log yet, because no client reads them.
    for line in file.lines(refused).await {
        assert_eq!((&line["status"], &line["decision"]), (&json!(429), &json!("limited")), "{line}");
        assert!(line["bytes"].as_u64().is_some_and(|bytes| bytes < 1000), "what was dropped was not sent: {line}");
    }
    until(|| audited(&log) == refused).await;
}
