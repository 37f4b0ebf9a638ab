//! Tests of renewed credentials and removed clusters while streams are open.

use std::path::Path;

use http_body_util::BodyExt;
use tributary_simulator::{Rejection, RequestKind, kubeconfig};

use crate::fixture::{PATIENCE, Program, config, get, member};

async fn watch(kubeconfig: &Path, path: &str) -> kube::client::Body {
    let client = kube::Client::try_from(config(kubeconfig, "all").await).unwrap();
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    response.into_body()
}

async fn wait_for_text(stream: &mut kube::client::Body, text: &str) {
    let mut seen = String::new();
    let found = async {
        while !seen.contains(text) {
            let frame = stream.frame().await.expect("not the end").expect("not broken off");
            seen.push_str(&String::from_utf8_lossy(frame.data_ref().unwrap()));
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no {text}"));
}

#[tokio::test]
async fn renewed_token_keeps_streams_open() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    let text = kubeconfig([&one, &two]);
    std::fs::write(&source, &text).unwrap();
    let (source_text, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;

    let of_all =
        "/api/v1/configmaps?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut merged = watch(&written, of_all).await;
    wait_for_text(&mut merged, "initial-events-end").await;
    let mut forwarded = watch(&written, "/clusters/one/api/v1/configmaps?watch=1").await;
    let control = one.control();
    control.reset_counters();
    control.hold_lists(true);
    // The member answers requests with the new token with 403. So a 403 proves that the program uses the new token.
    control.accept("renewed", Some(Rejection { kinds: vec![RequestKind::Other], ..Rejection::all(403) }));
    std::fs::write(&source, text.replace(one.token(), "renewed")).unwrap();
    program.logged("the cluster's credentials are renewed", 1).await;
    get(&written, "one", "/version").await.unwrap_err();
    let object = |name: &str| serde_json::json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}});
    one.apply(object("renewed-one")).unwrap();
    two.apply(object("renewed-two")).unwrap();
    for stream in [&mut merged, &mut forwarded] {
        wait_for_text(stream, "renewed-one").await;
    }
    wait_for_text(&mut watch(&written, of_all).await, "renewed-two").await;
    let listed = control.request_log().into_iter().filter(|line| {
        line.contains("/configmaps") && !line.contains("limit=1&") && !line.contains("watch=1&resourceVersion=")
    });
    assert_eq!(listed.collect::<Vec<_>>(), Vec::<String>::new());

    std::fs::write(&source, kubeconfig([&two])).unwrap();
    let cut_off = async { while let Some(Ok(_)) = forwarded.frame().await {} };
    tokio::time::timeout(PATIENCE, cut_off).await.expect("a stream of a cluster that is gone goes on");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}
