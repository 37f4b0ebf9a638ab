//! Tests of a KubeGateway manifest that `tributary convert` has converted. Requests go to the same servers as with
//! KubeGateway.

use std::time::Duration;

use serde_json::json;
use tributary_simulator::{SimulatedCluster, Simulator, SimulatorConfig};

use crate::fixture::{PATIENCE, Program, run};
use crate::hosts::get_at;

/// The token in the manifest, plain and in base64.
const TOKEN: (&str, &str) = ("hunter2", "aHVudGVyMg==");

/// The host names of the cluster in the manifest: the name of the object, and an entry of `serverNames`.
const HOSTS: [&str; 2] = ["eu.example.com", "api.example.com"];

/// The number of requests of each kind, large enough that one server does not get all of them by chance.
const REQUESTS: usize = 20;

async fn server_of_eu() -> SimulatedCluster {
    let config = SimulatorConfig { name: "eu".to_owned(), pods: 10, ..SimulatorConfig::default() };
    let server = Simulator::start(config).await.unwrap();
    server.control().accept(TOKEN.0, None);
    server
}

/// Returns the manifest. The manifest's rules send gets of single ConfigMaps to the second server, and lists of nodes
/// to the third server, which is disabled. The rules deny reads of Secrets, and send all other reads to any server.
fn manifest(servers: &[SimulatedCluster; 3]) -> String {
    let [first, second, third] = servers.each_ref().map(SimulatedCluster::url);
    let rule = |verbs: &[&str], group: &str, resource: &str| {
        let rule = json!({"verbs": verbs, "apiGroups": [group], "resources": [resource]});
        json!([rule])
    };
    let spec = json!({
        "servers": [{"endpoint": first}, {"endpoint": second}, {"endpoint": third, "disabled": true}],
        "clientConfig": {"insecure": true, "bearerToken": TOKEN.1},
        "secureServing": {"serverNames": [HOSTS[1]]},
        "flowControl": {"flowControlSchemas": [{"name": "nobody", "maxRequestsInflight": {"max": 0}}]},
        "dispatchPolicies": [
            {"strategy": "RoundRobin", "upsteamSubset": [second], "rules": rule(&["get"], "", "configmaps")},
            {"upstreamSubset": [third], "rules": rule(&["list"], "", "nodes")},
            {"flowControlSchemaName": "nobody", "rules": rule(&["*"], "", "secrets")},
            {"rules": rule(&["get", "list"], "*", "*")},
        ],
    });
    let (api_version, kind) = ("proxy.kubegateway.io/v1alpha1", "UpstreamCluster");
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": HOSTS[0]}, "spec": spec}).to_string()
}

fn sent(servers: &[SimulatedCluster; 3], path: &str) -> [usize; 3] {
    let line = format!("GET {path}");
    servers.each_ref().map(|server| server.control().request_log().iter().filter(|sent| **sent == line).count())
}

#[tokio::test]
async fn converted_cluster_receives_the_requests_that_kubegateway_sent() {
    let directory = tempfile::tempdir().unwrap();
    let servers = [server_of_eu().await, server_of_eu().await, server_of_eu().await];
    let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x", "namespace": "default"}});
    servers[1].apply(map).unwrap();
    let given = directory.path().join("gateway.yaml");
    std::fs::write(&given, manifest(&servers)).unwrap();
    let (code, converted, notes) = run(&["convert", given.to_str().unwrap()], directory.path()).await;
    assert_eq!(code, Some(0), "{notes}");
    assert!(notes.contains("is disabled; it becomes a drained endpoint"), "{notes}");
    let config = directory.path().join("config");
    std::fs::create_dir(&config).unwrap();
    std::fs::write(config.join("eu.yaml"), &converted).unwrap();

    let (config, written) = (config.to_str().unwrap(), directory.path().join("all.kubeconfig"));
    let arguments =
        ["serve", "--config", config, "--listen", "127.0.0.1:0", "--write-kubeconfig", written.to_str().unwrap()];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;
    let map = "/api/v1/namespaces/default/configmaps/x";
    let answered = async {
        while get_at(&written, HOSTS[0], map).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, answered).await;
    assert!(in_time.is_ok(), "{}", program.log.lock().unwrap());
    servers.iter().for_each(|server| server.control().reset_counters());

    let (pods, nodes, secrets) =
        ("/api/v1/namespaces/default/pods?limit=1", "/api/v1/nodes", "/api/v1/namespaces/default/secrets");
    for number in 0..REQUESTS {
        let host = HOSTS[number % HOSTS.len()];
        for (path, status, says) in [
            (map, 200, "\"x\""),
            (pods, 200, "PodList"),
            (nodes, 503, "drain"),
            (secrets, 429, "flow control schema \\\"nobody\\\" admits no requests"),
            ("/version", 500, "no rule of the dispatch policies"),
        ] {
            let (code, text) = get_at(&written, host, path).await;
            assert_eq!(code, status, "{host} {path}: {text}");
            assert!(text.contains(says), "{host} {path}: {text}");
        }
    }
    assert_eq!(get_at(&written, "us.example.com", pods).await.0, 503, "nobody's host");
    assert_eq!(sent(&servers, map), [0, REQUESTS, 0]);
    let [first, second, third] = sent(&servers, pods);
    assert_eq!((first + second, third), (REQUESTS, 0), "{first} and {second}");
    assert_eq!(sent(&servers, nodes), [0; 3]);
    assert_eq!(sent(&servers, secrets), [0; 3]);
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}
