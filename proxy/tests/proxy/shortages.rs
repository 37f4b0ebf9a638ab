//! Tests of a process without free file descriptors. In such a process, connections, name resolutions and plugin runs
//! fail. These failures must not count against a member.
//!
//! The tests run in a separate process, because other tests need file descriptors.

use std::fs::File;
use std::io;
use std::process::Command;
use std::time::Duration;

use http::{StatusCode, Uri};
use tributary_apimachinery::ClusterName;
use tributary_apimachinery::body::BoxError;
use tributary_proxy::{
    BoxIo, BreakerTuning, ClientTuning, ClusterClient, Connector, ForwardError, ReachabilityState, RequestIdentity,
    Sent,
};

use crate::credentials::plugin;
use crate::member::{self, Port, SendRequest, get};
use crate::own_process;
use crate::plugins::TOKEN;

/// Environment variable that marks the process without free file descriptors.
const IS_SHORT: &str = "TRIBUTARY_TEST_WITHOUT_DESCRIPTORS";

/// Sends twice as many requests as the number of consecutive failures that opens an endpoint's circuit breaker.
async fn ask_often(client: &ClusterClient) -> Vec<ForwardError> {
    let mut errors = Vec::new();
    for _ in 0..2 * BreakerTuning::default().consecutive_failures {
        errors.push(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err());
    }
    errors
}

fn check_unblamed(client: &ClusterClient, errors: &[ForwardError]) {
    for error in errors {
        assert_eq!((error.status_code(), error.sent()), (StatusCode::SERVICE_UNAVAILABLE, Sent::No), "{error}");
        let text = error.to_string();
        assert!(text.contains("this process has reached its limit of open files"), "{text}");
        assert!(text.contains("is not at fault") && text.contains("ulimit -n"), "{text}");
    }
    let endpoint = &client.endpoints()[0];
    assert_eq!((endpoint.breaker_openings, endpoint.left_out.clone()), (0, None));
    assert!(matches!(endpoint.reachability.state, ReachabilityState::Unknown), "{:?}", endpoint.reachability);
}

fn take_descriptors() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// Runs a test of this module in a separate process with a low limit of open files.
fn run_short(test: &str) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap()).env(IS_SHORT, "1");
    own_process::run(&mut command, &format!("shortages::{test}"));
}

fn is_short() -> bool {
    std::env::var_os(IS_SHORT).is_some()
}

#[test]
fn dns_failure_without_file_descriptors_keeps_the_member_healthy() {
    if !is_short() {
        return run_short("dns_failure_without_file_descriptors_keeps_the_member_healthy");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let port = Port::reserve();
        let url = || format!("http://localhost:{}", port.address().port()).parse::<Uri>().unwrap();
        let resolving = member::connect(kube::Config::new(url()), ClientTuning::default()).await;
        // The connector's error makes the proxy check whether this machine has a source address, and resolve the host
        // name again for this check.
        let without_source = Connector::new(tower::service_fn(|_: Uri| async {
            Err::<BoxIo, BoxError>(io::Error::from(io::ErrorKind::AddrNotAvailable).into())
        }));
        let (name, config) = (ClusterName::new("c2").unwrap(), kube::Config::new(url()));
        let again = ClusterClient::connect_through(without_source, name, config, ClientTuning::default());
        let again = again.await.unwrap();

        let descriptors = take_descriptors();
        let errors = [ask_often(&resolving).await, ask_often(&again).await];
        drop(descriptors);
        for (client, errors) in [&resolving, &again].into_iter().zip(&errors) {
            assert!(errors.iter().all(|error| matches!(error, ForwardError::Exhausted { .. })), "{errors:?}");
            check_unblamed(client, errors);
        }
        let error = resolving.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
        assert!(matches!(error, ForwardError::Dial { .. }), "it is refused: {error:?}");
    });
}

#[test]
fn exec_plugin_failure_without_file_descriptors_keeps_the_member_healthy() {
    if !is_short() {
        return run_short("exec_plugin_failure_without_file_descriptors_keeps_the_member_healthy");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (folder, port) = (tempfile::tempdir().unwrap(), Port::reserve());
        let mut config = kube::Config::new(format!("http://{}", port.address()).parse().unwrap());
        config.auth_info.exec = Some(plugin(folder.path(), TOKEN));
        // This interval is long, so that the plugin does not run again.
        let tuning = ClientTuning { credential_retry_interval: Duration::from_secs(600), ..ClientTuning::default() };
        let client = member::connect(config, tuning).await;

        let descriptors = take_descriptors();
        let errors = ask_often(&client).await;
        drop(descriptors);
        // The failure of the plugin is reported until the plugin runs again. It does not count against the member.
        let later = ask_often(&client).await;
        for errors in [errors, later] {
            let is_short = |error: &ForwardError| matches!(error, ForwardError::CredentialsExhausted { .. });
            assert!(errors.iter().all(is_short), "{errors:?}");
            check_unblamed(&client, &errors);
        }
    });
}
