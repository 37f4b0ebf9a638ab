//! Tests that run credential plugins as processes: concurrent runs, shared runs, and failures.

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use kube::config::ExecConfig;
use tokio::time::Instant;
use tributary_proxy::{ClientTuning, ClusterClient, RequestIdentity};

use crate::credentials::{plugin, quick, runs};
use crate::member::{self, Member, SendRequest, get};

/// Script of a plugin that returns a token without expiry.
pub(crate) const TOKEN: &str = r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}'"#;

/// A client of the member with a credential plugin. Clients with the same tuning share one run of equal plugins.
async fn client(member: &Member, exec: &ExecConfig, tuning: &ClientTuning) -> ClusterClient {
    let mut config = member.config();
    config.auth_info.exec = Some(exec.clone());
    member::connect(config, tuning.clone()).await
}

fn with_argument(exec: &ExecConfig, argument: usize) -> ExecConfig {
    ExecConfig { args: Some(vec![argument.to_string()]), ..exec.clone() }
}

/// A plugin that records the number of concurrent runs.
fn counting_plugin(folder: &Path) -> ExecConfig {
    let folder_text = folder.display();
    let script = format!(
        "mkdir -p {folder_text}/running; touch {folder_text}/running/$$; ls {folder_text}/running | wc -l >> {folder_text}/counts\n\
         sleep 0.2; rm {folder_text}/running/$$; {TOKEN}"
    );
    plugin(folder, &script)
}

#[tokio::test]
async fn maximum_of_concurrent_exec_plugins_applies_to_all_members_together() {
    let folder = tempfile::tempdir().unwrap();
    let (member, tuning) = (Member::echo().await, quick());
    let exec = counting_plugin(folder.path());
    let clients = (0..20).map(|number| {
        let (member, tuning, exec) = (&member, &tuning, with_argument(&exec, number));
        async move { client(member, &exec, tuning).await }
    });
    let clients = join_all(clients).await;
    for answer in join_all(clients.iter().map(|client| client.send_request(get("/api"), RequestIdentity::Member))).await
    {
        answer.unwrap();
    }
    let counts = std::fs::read_to_string(folder.path().join("counts")).unwrap();
    let counts: Vec<u32> = counts.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(counts.len(), 20);
    assert!(*counts.iter().max().unwrap() <= 6, "{counts:?}");
}

#[tokio::test]
async fn members_with_the_same_exec_plugin_share_one_run_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let (member, tuning) = (Member::echo().await, quick());
    let exec = plugin(folder.path(), &format!("sleep 0.1; {TOKEN}"));
    let clients = join_all((0..20).map(|_| client(&member, &exec, &tuning))).await;
    for answer in join_all(clients.iter().map(|client| client.send_request(get("/api"), RequestIdentity::Member))).await
    {
        answer.unwrap();
    }
    assert_eq!(runs(&exec), 1);
    // A plugin with the cluster in its input (`provideClusterInfo`) runs once for each client, because its token may be
    // valid for only this cluster.
    let cluster = serde_json::from_value(serde_json::json!({"server": "https://127.0.0.1"})).unwrap();
    let with_cluster = ExecConfig { provide_cluster_info: true, cluster: Some(cluster), ..exec.clone() };
    for _ in 0..2 {
        let client = client(&member, &with_cluster, &tuning).await;
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    }
    assert_eq!(runs(&exec), 3);
}

#[tokio::test]
async fn failing_exec_plugin_runs_with_growing_pauses() {
    let folder = tempfile::tempdir().unwrap();
    let member = Member::echo().await;
    let exec = plugin(folder.path(), "echo 'not signed in' >&2; exit 1");
    let tuning = ClientTuning { credential_retry_interval: Duration::from_millis(20), ..quick() };
    let client = client(&member, &exec, &tuning).await;
    assert_eq!(client.credentials_problem(), None);
    let begun = Instant::now();
    // If the pause did not grow, the plugin would run a hundred times.
    while begun.elapsed() < Duration::from_secs(2) {
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (runs, problem) = (runs(&exec), client.credentials_problem().unwrap());
    assert!((2..=8).contains(&runs), "{runs}");
    let expected = format!("failed {runs} times in ");
    assert!(
        problem.contains("not signed in") && problem.contains(&expected) && problem.contains("may run again in"),
        "{problem}"
    );
}

#[tokio::test]
async fn exec_plugin_with_rejected_credentials_runs_with_growing_pauses() {
    let folder = tempfile::tempdir().unwrap();
    let exec = plugin(folder.path(), TOKEN);
    let member = rejecting().await;
    let tuning = ClientTuning { credential_retry_interval: Duration::from_millis(20), ..quick() };
    let client = client(&member, &exec, &tuning).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!((2..=9).contains(&runs(&exec)), "{}", runs(&exec));
}

/// A plugin that returns a token with the number of the run. The token is valid for an hour, or for two to three
/// seconds if `folder` has a file `short`. The plugin fails if `folder` has a file `fail`.
fn numbering_plugin(folder: &Path) -> ExecConfig {
    let folder_text = folder.display();
    let script = format!(
        "test -e {folder_text}/fail && {{ echo 'signed out' >&2; exit 1; }}\n\
         lives='1 hour'; test -e {folder_text}/short && lives='6 seconds'\n\
         at=$(date -u -d \"+$lives\" +%Y-%m-%dT%H:%M:%SZ)\n\
         echo '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{{\"token\":\"'$n'\",\"expirationTimestamp\":\"'$at'\"}}}}'"
    );
    plugin(folder, &script)
}

async fn rejecting() -> Member {
    Member::start(member::Options::default(), |_, _| async {
        member::text(http::StatusCode::UNAUTHORIZED, String::new())
    })
    .await
}

fn last_run(member: &Member) -> u32 {
    member.last().all("authorization")[0].strip_prefix("Bearer ").unwrap().parse().unwrap()
}

#[tokio::test]
async fn member_that_rejects_credentials_does_not_block_a_shared_exec_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let exec = numbering_plugin(folder.path());
    let (hostile, member) = (rejecting().await, Member::echo().await);
    let tuning = ClientTuning { credential_retry_interval: Duration::from_millis(200), ..quick() };
    let (rejected, other) = (client(&hostile, &exec, &tuning).await, client(&member, &exec, &tuning).await);
    // The rejections of the first cluster cause pauses of 0.2 s to 3.2 s between plugin runs, and then a pause of 6.4
    // s. If the clusters shared these pauses, the second cluster would have to wait.
    let reject_until = async |count: u32| {
        while runs(&exec) < count {
            rejected.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    reject_until(6).await;
    std::fs::write(folder.path().join("short"), "").unwrap();
    reject_until(7).await;
    other.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    let first = last_run(&member);
    tokio::time::sleep(Duration::from_millis(6100)).await;
    other.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    assert!(last_run(&member) > first, "a token was sent that had expired");
}

#[tokio::test]
async fn expired_credentials_of_a_failing_exec_plugin_are_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let exec = numbering_plugin(folder.path());
    std::fs::write(folder.path().join("short"), "").unwrap();
    let member = Member::echo().await;
    let tuning = ClientTuning { credential_retry_interval: Duration::from_secs(3600), ..quick() };
    let client = client(&member, &exec, &tuning).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    std::fs::write(folder.path().join("fail"), "").unwrap();
    tokio::time::sleep(Duration::from_millis(6100)).await;
    let seen = member.seen().len();
    for _ in 0..3 {
        let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err().to_string();
        for part in [exec.command.as_deref().unwrap(), "signed out", "may run again in"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    assert_eq!((runs(&exec), member.seen().len()), (2, seen));
}

#[tokio::test]
async fn exec_plugin_that_prints_another_api_version_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let member = Member::echo().await;
    let answer = r#"echo '{"apiVersion":"client.authentication.k8s.io/v1beta1","status":{"token":"secret-token"}}'"#;
    let client = client(&member, &plugin(folder.path(), answer), &quick()).await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err().to_string();
    assert!(error.contains("apiVersion") && !error.contains("secret-token"), "{error}");
    assert!(member.seen().is_empty());
}
