//! Tests of the probes and circuit breakers of endpoints, as an `UpstreamCluster` object configures them.

use std::path::Path;
use std::time::Duration;

use tributary_simulator::SimulatedCluster;

use crate::fixture::{PATIENCE, Program, add_to_upstream_cluster, get, member};

/// Returns whether the metrics report that the endpoint of a cluster gets no requests for this reason.
async fn is_left_out(kubeconfig: &Path, cluster: &SimulatedCluster, reason: &str) -> bool {
    let labels = format!("{{cluster=\"{}\",endpoint=\"{}\",reason=\"{reason}\"}}", cluster.name(), cluster.address());
    let metric = format!("tributary_endpoint_left_out{labels} ");
    let metrics = get(kubeconfig, "all", "/metrics").await.unwrap();
    let value = metrics.lines().find_map(|line| line.strip_prefix(&metric));
    value.unwrap_or_else(|| panic!("no {metric}: {metrics}")) == "1"
}

async fn until(what: &str, program: &Program, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, wait).await;
    assert!(in_time.is_ok(), "it does not come true: {what}: {}", program.log.lock().unwrap());
}

/// The servers of two clusters fail in the same way. The threshold of one cluster is one failure, and the threshold of
/// the other cluster is a hundred or more.
#[tokio::test]
async fn endpoint_probe_and_circuit_breaker_follow_the_configuration() {
    const STRICT: &str = "  endpointProbe: { periodSeconds: 1 }\n  circuitBreaker: { consecutiveFailures: 1, \
                          openSeconds: 300 }\n";
    const PATIENT: &str = "  endpointProbe: { periodSeconds: 1, failureThreshold: 100 }\n  circuitBreaker: { \
                           consecutiveFailures: 1000 }\n";
    let directory = tempfile::tempdir().unwrap();
    let (strict, patient) = (member("strict").await, member("patient").await);
    let (config, written) = (directory.path().join("config"), directory.path().join("all.kubeconfig"));
    std::fs::create_dir(&config).unwrap();
    add_to_upstream_cluster(&config, &strict, STRICT);
    add_to_upstream_cluster(&config, &patient, PATIENT);
    let (config_text, written_text) = (config.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--config", config_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;

    let probes = |member: &SimulatedCluster| {
        member.control().request_log().iter().filter(|line| line.starts_with("GET /readyz")).count()
    };
    let before = [&strict, &patient].map(probes);
    for member in [&strict, &patient] {
        member.control().ready(false);
    }
    // Three failed probes of each member reach the default threshold.
    let said = async || [&strict, &patient].map(probes).iter().zip(before).all(|(now, before)| *now >= before + 3);
    until("both are probed each second", &program, said).await;
    let strict_is_out = async || is_left_out(&written, &strict, "probe").await;
    until("one failure is enough", &program, strict_is_out).await;
    assert!(!is_left_out(&written, &patient, "probe").await, "three of a hundred are not");

    for member in [&strict, &patient] {
        member.control().stop_listening().await;
        member.control().disconnect();
    }
    let strict_is_open = async || is_left_out(&written, &strict, "breaker").await;
    until("one failure opens the breaker", &program, strict_is_open).await;
    let patient_is_lost = async || is_left_out(&written, &patient, "unreachable").await;
    until("the other is lost", &program, patient_is_lost).await;
    assert!(is_left_out(&written, &strict, "breaker").await, "it stays open for five minutes");
    assert!(!is_left_out(&written, &patient, "breaker").await, "a few failures of a thousand open none");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}
