//! `tributary serve` and `demo` as a user runs them, over simulated members: files, reloads and signals.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;
use tributary_apimachinery::body::Body;
use tributary_proxy::{ClientTuning, ClusterClient, RequestIdentity};
use tributary_simulator::{Rejection, RequestKind, SimulatedCluster, Simulator, SimulatorConfig, kubeconfig};

/// How long a test waits for what has to come: a limit for what never comes, not for how fast the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

async fn member(name: &str) -> SimulatedCluster {
    Simulator::start(SimulatorConfig { name: name.to_owned(), pods: 10, ..SimulatorConfig::default() }).await.unwrap()
}

struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// What it has said on standard error so far.
    log: Arc<Mutex<String>>,
    logging: JoinHandle<()>,
}

impl Program {
    fn start(arguments: &[&str], directory: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tributary"))
            .args(arguments)
            .env("HOME", directory)
            .env("TMPDIR", directory)
            .env_remove("XDG_DATA_HOME")
            .env_remove("KUBECONFIG")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        let logging = tokio::spawn(async move {
            while let Some(line) = errors.next_line().await.unwrap() {
                *written.lock().unwrap() += &(line + "\n");
            }
        });
        Self { child, lines, log, logging }
    }

    /// The first line, which must be the `ready:` line.
    async fn ready(&mut self) -> String {
        match tokio::time::timeout(PATIENCE, self.lines.next_line()).await.unwrap().unwrap() {
            Some(line) => line,
            None => panic!("it ended: {}", self.errors().await),
        }
    }

    /// All that it said on standard error, once it has ended.
    async fn errors(&mut self) -> String {
        tokio::time::timeout(PATIENCE, &mut self.logging).await.unwrap().unwrap();
        self.log.lock().unwrap().clone()
    }

    /// Waits until it has logged something so many times.
    async fn logged(&self, part: &str, times: usize) {
        let wait = async {
            while self.log.lock().unwrap().matches(part).count() < times {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, wait).await;
        assert!(in_time.is_ok(), "{part:?} was not logged: {}", self.log.lock().unwrap());
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    async fn end(&mut self) -> ExitStatus {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap()
    }
}

fn contexts(path: &Path) -> Vec<String> {
    let config = Kubeconfig::read_from(path).unwrap();
    config.contexts.into_iter().map(|context| context.name).collect()
}

async fn wait_for_contexts(path: &Path, expected: &[&str]) {
    let wait = async {
        while contexts(path) != expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("{:?} never became {expected:?}", contexts(path)));
}

async fn config(kubeconfig: &Path, context: &str) -> kube::Config {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig).unwrap(), &options).await.unwrap()
}

async fn get(kubeconfig: &Path, context: &str, path: &str) -> Result<String, kube::Error> {
    let client = kube::Client::try_from(config(kubeconfig, context).await).unwrap();
    client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await
}

#[tokio::test]
async fn it_serves_reloads_and_drains() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    let (source_text, written_text) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments =
        ["serve", "--kubeconfig", source_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    let mut program = Program::start(&arguments, directory.path());
    let ready = program.ready().await;
    assert!(ready.starts_with("ready: https://127.0.0.1:"), "{ready}");
    assert!(ready.ends_with(&format!("kubeconfig={written_text} clusters=one")), "{ready}");

    let data = directory.path().join(".local/share/tributary");
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(data.clone()), 0o700);
    for file in std::fs::read_dir(&data).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(path.clone()), 0o600, "{}", path.display());
    }
    assert_eq!(mode(written.clone()), 0o600);
    assert_eq!(get(&written, "all", "/readyz").await.unwrap(), "ok");
    assert_eq!(contexts(&written), ["all", "one"]);

    std::fs::write(&source, kubeconfig([&one, &two])).unwrap();
    wait_for_contexts(&written, &["all", "one", "two"]).await;
    std::fs::write(&source, "{ broken").unwrap();
    program.signal("HUP");
    program.logged("the new configuration is refused", 1).await;
    assert_eq!(get(&written, "all", "/readyz").await.unwrap(), "ok", "the old configuration stays");
    assert_eq!(contexts(&written), ["all", "one", "two"]);
    std::fs::write(&source, kubeconfig([&two])).unwrap();
    wait_for_contexts(&written, &["all", "two"]).await;

    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let log = program.errors().await;
    assert!(log.contains("the new configuration is refused") && log.contains("does not parse"), "{log}");
    for secret in [one.token(), two.token(), &std::fs::read_to_string(data.join("token")).unwrap()] {
        assert!(!log.contains(secret), "no token in the log: {log}");
    }
}

/// `tributary status` with these arguments: its exit code, what it printed, and its errors.
async fn status(arguments: &[&str], directory: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tributary"));
    command.arg("status").args(arguments).env("HOME", directory).env_remove("KUBECONFIG");
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn status_shows_a_server_and_says_what_to_do_where_there_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&one, &two])).unwrap();
    let (source_text, written_text) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments =
        ["serve", "--kubeconfig", source_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    let mut program = Program::start(&arguments, directory.path());
    let ready = program.ready().await;
    let address = ready.split_whitespace().nth(1).unwrap().trim_end_matches('/').to_owned();
    get(&written, "all", "/api/v1/pods").await.unwrap();
    two.control().stop_listening().await;
    while !get(&written, "all", "/readyz?verbose").await.unwrap().contains("[-]cluster/two failed: ") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let flag = ["--kubeconfig", written_text];
    let (code, screen, errors) = status(&flag, directory.path()).await;
    assert_eq!((code, errors.as_str()), (Some(0), ""), "without a terminal it is printed once");
    let row = |name: &str| screen.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    assert!(screen.starts_with("tributary ") && screen.contains("1 ready, 1 unreachable"), "{screen}");
    assert!(row("one ").contains("ready") && row("two ").contains("unreachable"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 110), "{screen}");

    // A cluster's own context leads to the same server.
    let (code, json, _) = status(&[&flag[..], &["--context", "one", "-o", "json"]].concat(), directory.path()).await;
    let report: tributary_router::Report = serde_json::from_str(&json).unwrap();
    assert_eq!((code, report.clusters.len()), (Some(0), 2), "{json}");
    assert!(report.cluster("one").unwrap().objects >= 10 && report.resident_bytes > Some(0), "{json}");
    assert!(report.limits.iter().any(|limit| limit.limit == "connections" && limit.used > 0), "{json}");
    for secret in [one.token(), two.token()] {
        assert!(!json.contains(secret) && !screen.contains(secret));
    }

    let (code, _, errors) = status(&["--kubeconfig", source_text, "--context", "one"], directory.path()).await;
    assert!(code == Some(1) && errors.contains("is no Tributary, or an older one: it answered 404"), "{errors}");
    let (code, _, errors) = status(&[&flag[..], &["--context", "none"]].concat(), directory.path()).await;
    assert!(code == Some(2) && errors.contains("no context \"none\"; it has: all, one, two"), "{errors}");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let (code, screen, errors) = status(&flag, directory.path()).await;
    assert_eq!((code, screen.as_str()), (Some(1), ""));
    for part in [&*address, written_text, "nothing answers at", "tributary serve", "--kubeconfig"] {
        assert!(errors.contains(part), "{part} in {errors}");
    }
}

/// A socket that holds a port without listening, so that nobody else is given it; a listener that allows the address to
/// be used again, as ours and tokio's do, can be bound beside it.
fn reserve() -> tokio::net::TcpSocket {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

#[tokio::test]
async fn a_written_kubeconfig_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let reserved = reserve();
    let address = reserved.local_addr().unwrap().to_string();
    for _ in 0..2 {
        let mut program = Program::start(
            &["serve", "--kubeconfig", source, "--listen", &address, "--write-kubeconfig", path],
            directory.path(),
        );
        assert!(program.ready().await.contains(&address));
        let first = std::fs::read(&written).unwrap();
        assert_eq!(get(&written, "all", "/livez").await.unwrap(), "ok");
        program.signal("INT");
        assert_eq!(program.end().await.code(), Some(0));
        assert_eq!(std::fs::read(&written).unwrap(), first);
    }
}

/// A core would have the tokens of the members and of the clients in it.
#[tokio::test]
async fn a_crash_leaves_no_core_with_secrets_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&member("one").await])).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", program.child.id().unwrap())).unwrap();
    let cores: Vec<&str> = limits.lines().find(|line| line.starts_with("Max core")).unwrap().split("  ").collect();
    assert_eq!(cores.iter().filter(|part| part.trim() == "0").count(), 2, "soft and hard: {cores:?}");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}

/// The stream of a watch, as it begins.
async fn watch(kubeconfig: &Path, path: &str) -> kube::client::Body {
    let client = kube::Client::try_from(config(kubeconfig, "all").await).unwrap();
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    let response = client.send(request).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    response.into_body()
}

/// Reads a stream until a text has come; fails at its end.
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
async fn a_new_token_costs_no_list_and_no_stream_and_a_removed_cluster_is_cut_off() {
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
    // What the new user may not do shows that requests are sent as it.
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

/// An UpstreamCluster in a file of its own, with the CA and the token in files beside it.
fn write_upstream_cluster(directory: &Path, member: &SimulatedCluster) {
    let name = member.name();
    std::fs::write(directory.join(format!("{name}.ca")), member.ca_pem()).unwrap();
    std::fs::write(directory.join(format!("{name}.token")), member.token()).unwrap();
    let text = format!(
        "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: {{ name: {name} }}\nspec:\n  endpoints: \
         [\"{}\"]\n  caFile: {name}.ca\n  credentials: {{ tokenFile: {name}.token }}\n",
        member.url()
    );
    std::fs::write(directory.join(format!("{name}.yaml")), text).unwrap();
}

#[tokio::test]
async fn configuration_files_are_served_and_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let config = directory.path().join("config");
    let written = directory.path().join("all.kubeconfig");
    std::fs::create_dir(&config).unwrap();
    write_upstream_cluster(&config, &one);
    let (config_text, written_text) = (config.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--config", config_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=one"));
    let namespaces = get(&written, "one", "/api/v1/namespaces?limit=1").await.unwrap();
    assert!(namespaces.contains("NamespaceList"), "{namespaces}");
    write_upstream_cluster(&config, &two);
    wait_for_contexts(&written, &["all", "one", "two"]).await;
    std::fs::write(config.join("bad.yaml"), "kind: Nonsense\n").unwrap();
    std::fs::remove_file(config.join("one.yaml")).unwrap();
    program.logged("the new configuration is refused", 1).await;
    assert_eq!(contexts(&written), ["all", "one", "two"], "a broken whole changes nothing");
    std::fs::remove_file(config.join("bad.yaml")).unwrap();
    wait_for_contexts(&written, &["all", "two"]).await;
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}

/// What a GET of a path at a host is answered, and with which status. By HTTP/1.1, where the host is a header.
async fn get_at(kubeconfig: &Path, host: &str, path: &str) -> (u16, String) {
    use kube::client::ConfigExt;
    use secrecy::ExposeSecret;
    let config = config(kubeconfig, "all").await;
    let mut tls = config.rustls_client_config().unwrap();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let address: std::net::SocketAddr = config.cluster_url.authority().unwrap().as_str().parse().unwrap();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(address.ip().into(), stream).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let token = config.auth_info.token.unwrap();
    let authorization = format!("Bearer {}", token.expose_secret());
    let request = http::Request::get(path).header("host", host).header("authorization", authorization);
    let answer = sender.send_request(request.body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    let (status, body) = (answer.status().as_u16(), answer.into_body().collect().await.unwrap());
    (status, String::from_utf8(body.to_bytes().to_vec()).unwrap())
}

/// Adds fields to a cluster's configuration.
fn add_to_upstream_cluster(directory: &Path, member: &SimulatedCluster, fields: &str) {
    write_upstream_cluster(directory, member);
    let path = directory.join(format!("{}.yaml", member.name()));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}{fields}")).unwrap();
}

#[tokio::test]
async fn one_persons_clusters_have_hosts_beside_the_kubeconfig_that_is_written() {
    const HOST: &str = "  serverNames: [One.test]\n";
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let (config, written) = (directory.path().join("config"), directory.path().join("all.kubeconfig"));
    std::fs::create_dir(&config).unwrap();
    write_upstream_cluster(&config, &one);
    write_upstream_cluster(&config, &two);
    let (config_text, written_text) = (config.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--config", config_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", written_text];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;
    let nodes = "/api/v1/nodes";
    assert!(get_at(&written, "nope.test", nodes).await.1.contains("tributary.dev/cluster"), "nobody names hosts");
    add_to_upstream_cluster(&config, &one, HOST);
    let wait = async {
        while get_at(&written, "nope.test", nodes).await.0 != 503 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, wait).await;
    assert!(in_time.is_ok(), "hosts were not told apart: {}", program.log.lock().unwrap());
    let (status, own) = get_at(&written, "one.test:6443", nodes).await;
    assert!(
        status == 200 && own.contains("one-node") && !own.contains("two-node") && !own.contains("tributary"),
        "{own}"
    );
    // What was written stays good.
    for context in ["all", "one"] {
        assert!(get(&written, context, nodes).await.unwrap().contains("one-node"), "{context}");
    }
    assert!(get(&written, "all", "/readyz?verbose").await.unwrap().contains("two"));

    // Who is served is settled when it starts.
    add_to_upstream_cluster(&config, &one, &format!("{HOST}  secureServing: {{ clientCAFile: one.ca }}\n"));
    program.logged("the endpoint was started for one person", 1).await;
    assert_eq!(get_at(&written, "one.test", nodes).await.0, 200, "the old configuration stays");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));

    let shared = ["serve", "--config", config_text, "--listen", "127.0.0.1:0"];
    let data = directory.path().join("data");
    let shared = [&shared[..], &["--data-dir", data.to_str().unwrap()]].concat();
    let mut program = Program::start(&shared, directory.path());
    program.ready().await;
    program.logged("clients refuse the certificate that they see at the host", 1).await;
    assert!(!data.join("token").exists(), "no credential is made for one person");
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));

    let mut program =
        Program::start(&[&shared[..], &["--merged-host", "all.test,ONE.test"]].concat(), directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let message = program.errors().await;
    let expected =
        "UpstreamCluster \"one\": spec.serverNames: \"one.test\" is a name of the merged view (--merged-host)";
    assert!(message.contains(expected), "{message}");
}

/// Follows the log of a pod: that holds a drain for as long as the answer is kept.
async fn hold_the_drain(kubeconfig: &Path, cluster: &str) -> http::Response<Body> {
    let pods = format!("/clusters/{cluster}/api/v1/pods?fieldSelector=status.phase%3DRunning&limit=1");
    let pods: serde_json::Value = serde_json::from_str(&get(kubeconfig, "all", &pods).await.unwrap()).unwrap();
    let pod = &pods["items"][0]["metadata"];
    let (namespace, name) = (pod["namespace"].as_str().unwrap(), pod["name"].as_str().unwrap());
    let path = format!("/clusters/{cluster}/api/v1/namespaces/{namespace}/pods/{name}/log?follow=true");
    let request = http::Request::get(path).body(Empty::new().map_err(|never| match never {}).boxed_unsync()).unwrap();
    let config = config(kubeconfig, "all").await;
    let client = ClusterClient::connect("own".parse().unwrap(), config, ClientTuning::default()).await.unwrap();
    let answer = client.forward(request, RequestIdentity::Member).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&arguments, directory.path());
    program.ready().await;
    let _held = hold_the_drain(&written, "one").await;
    program.signal("TERM");
    program.logged("a second signal ends at once", 1).await;
    assert!(program.child.try_wait().unwrap().is_none(), "the drain waits");
    program.signal("TERM");
    // Where the drain is waited for the code is 0.
    assert_eq!(program.end().await.code(), Some(1));
}

/// Sends what connects to a port on to an address.
async fn forward(from: u16, to: std::net::SocketAddr) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", from)).await.unwrap();
    while let Ok((mut near, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut far = tokio::net::TcpStream::connect(to).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
    }
}

#[tokio::test]
#[ignore = "takes as long as a member is left alone after a failure, up to 20 s"]
async fn a_twin_that_was_out_of_reach_is_refused_when_it_comes() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let reserved = reserve();
    let later = reserved.local_addr().unwrap().port();
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    let text = kubeconfig([&one]);
    let twin = text.replace(&one.url(), &format!("https://127.0.0.1:{later}")).replace("one", "twin");
    let other = directory.path().join("twin.kubeconfig");
    std::fs::write(&source, text).unwrap();
    std::fs::write(&other, twin).unwrap();
    let config = directory.path().join("twin.yaml");
    let reference = "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: { name: twin }\nspec: { kubeconfig: { path: twin.kubeconfig } }\n";
    std::fs::write(&config, reference).unwrap();
    let (source, config, path) = (source.to_str().unwrap(), config.to_str().unwrap(), written.to_str().unwrap());
    let arguments =
        ["serve", "--kubeconfig", source, "--config", config, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=one,twin"));
    let forwarding = tokio::spawn(forward(later, one.address()));
    let refused = async {
        while !get(&written, "all", "/readyz?verbose").await.unwrap().contains("same uid") {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.unwrap();
    forwarding.abort();
    program.signal("TERM");
    program.end().await;
    let log = program.errors().await;
    assert_eq!(log.matches("the cluster is refused").count(), 1, "{log}");
}

/// Whoever runs one of the clusters has it say that it is another, by that one's kube-system uid, which is no secret. The
/// endpoint serves all of them all the same, from the start, and says so.
#[tokio::test]
async fn a_cluster_that_only_says_that_it_is_another_keeps_the_endpoint_from_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let victim = member("victim").await;
    // The same name and seed give the same uid; nothing else of it is the victim's.
    let hostile = member("victim").await;
    let config = directory.path().join("config");
    std::fs::create_dir(&config).unwrap();
    write_upstream_cluster(&config, &hostile);
    for end in ["ca", "token"] {
        std::fs::rename(config.join(format!("victim.{end}")), config.join(format!("a.{end}"))).unwrap();
    }
    let text = std::fs::read_to_string(config.join("victim.yaml")).unwrap();
    std::fs::write(config.join("a.yaml"), text.replace("victim", "a")).unwrap();
    write_upstream_cluster(&config, &victim);
    let arguments = ["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=a,victim"));
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let log = program.errors().await;
    assert_eq!(log.matches("two clusters say that they are one").count(), 1, "{log}");
}

/// There is no kubeconfig, and no file that a flag names: what is wrong with the flags themselves comes first.
#[tokio::test]
async fn flags_that_do_not_fit_each_other_are_told_before_anything_is_read() {
    let directory = tempfile::tempdir().unwrap();
    for (flags, expected) in [
        ("--listen 0.0.0.0:7443", "0.0.0.0:7443 is not a loopback address"),
        ("--listen 0.0.0.0:7443 --client-ca-file nowhere.crt", "give one of your own by --tls-cert-file"),
        ("--client-ca-file nowhere.crt --write-kubeconfig all.kubeconfig", "a shared endpoint has none"),
        ("--denied-users-file nowhere.yaml", "--denied-users-file is for an endpoint that many users share"),
        (
            "--client-ca-file nowhere.crt --requestheader-client-ca-file nowhere.crt",
            "--requestheader-allowed-names is not",
        ),
        (
            "--config nowhere --client-ca-file nowhere.crt --write-kubeconfig all.kubeconfig",
            "a shared endpoint has none",
        ),
    ] {
        let arguments: Vec<_> = ["serve"].into_iter().chain(flags.split(' ')).collect();
        let mut program = Program::start(&arguments, directory.path());
        assert_eq!(program.end().await.code(), Some(2), "{flags}");
        let message = program.errors().await;
        assert!(message.contains(expected), "{flags}: {message}");
    }
}

#[tokio::test]
async fn two_contexts_of_one_cluster_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let source = directory.path().join("members.kubeconfig");
    let text = kubeconfig([&one]);
    let twice = text.replace("contexts:\n", "contexts:\n- name: twin\n  context:\n    cluster: one\n    user: one\n");
    assert_ne!(text, twice);
    std::fs::write(&source, twice).unwrap();
    let arguments = ["serve", "--kubeconfig", source.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut program = Program::start(&arguments, directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let message = program.errors().await;
    for part in ["context \"one\"", "context \"twin\"", "same uid"] {
        assert!(message.contains(part), "{part} in {message}");
    }
}

#[tokio::test]
async fn the_cluster_that_reviews_tokens_is_one_that_is_served() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let config = directory.path().join("config");
    std::fs::create_dir(&config).unwrap();
    write_upstream_cluster(&config, &one);
    let arguments =
        ["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0", "--token-review-cluster"];
    let mut program = Program::start(&[&arguments[..], &["two"]].concat(), directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let message = program.errors().await;
    assert!(message.contains("--token-review-cluster two: there is no such cluster"), "{message}");
    // It does not go away later, either: then nobody would be known.
    write_upstream_cluster(&config, &two);
    let mut program = Program::start(&[&arguments[..], &["two"]].concat(), directory.path());
    program.ready().await;
    std::fs::remove_file(config.join("two.yaml")).unwrap();
    program.logged("the new configuration is refused", 1).await;
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}

#[tokio::test]
async fn the_demo_cleans_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = Program::start(&["demo", "--clusters", "2", "--pods", "20", "--churn", "5"], directory.path());
    let ready = program.ready().await;
    assert!(ready.ends_with("clusters=member1,member2"), "{ready}");
    let mut printed = String::new();
    while !printed.contains("Ctrl-C") {
        let line = tokio::time::timeout(PATIENCE, program.lines.next_line()).await.unwrap().unwrap().unwrap();
        printed.push_str(&line);
        printed.push('\n');
    }
    let kubeconfig = printed.split_whitespace().skip_while(|word| *word != "--kubeconfig").nth(1).unwrap();
    assert_eq!(contexts(Path::new(kubeconfig)), ["all", "member1", "member2"]);
    assert_eq!(get(Path::new(kubeconfig), "all", "/readyz").await.unwrap(), "ok");
    let token = std::fs::read_to_string(Path::new(kubeconfig).parent().unwrap().join("data/token")).unwrap();
    assert!(!printed.contains(&token), "the token is in files alone");
    program.signal("INT");
    assert_eq!(program.end().await.code(), Some(0));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_broken_context_that_nobody_named_does_not_keep_the_others_away() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    let text = kubeconfig([&one])
        .replace("contexts:\n", "contexts:\n- name: broken\n  context:\n    cluster: broken\n    user: one\n")
        .replace("clusters:\n", "clusters:\n- name: broken\n  cluster:\n    server: https://127.0.0.1:1\n    certificate-authority: gone.pem\n");
    std::fs::write(&source, text).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=broken,one"));
    let ready = get(&written, "all", "/readyz?verbose").await.unwrap();
    assert!(ready.contains("broken") && ready.contains("gone.pem"), "{ready}");
    assert!(get(&written, "one", "/api/v1/namespaces?limit=1").await.is_ok());
    for round in 1..=2 {
        program.signal("HUP");
        program.logged("configuration reloaded", round).await;
    }
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
    let log = program.errors().await;
    assert_eq!(log.matches("gone.pem").count(), 1, "said once: {log}");
    let mut program = Program::start(&[&arguments[..], &["--contexts", "one,broken"]].concat(), directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let log = program.errors().await;
    assert!(log.contains("gone.pem") && log.contains("context \"broken\""), "{log}");
}

#[tokio::test]
async fn the_demo_cleans_up_after_a_second_signal_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut program = Program::start(&["demo", "--clusters", "1", "--pods", "5", "--churn", "0"], directory.path());
    let ready = program.ready().await;
    let kubeconfig = ready.split_whitespace().find_map(|word| word.strip_prefix("kubeconfig=")).unwrap().to_owned();
    let _held = hold_the_drain(Path::new(&kubeconfig), "member1").await;
    program.signal("INT");
    program.logged("a second signal ends at once", 1).await;
    assert!(program.child.try_wait().unwrap().is_none(), "the drain waits");
    program.signal("INT");
    assert_eq!(program.end().await.code(), Some(1));
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The last four digits of the versions of the pods, per cluster.
async fn indices(written: &Path) -> BTreeMap<String, u64> {
    let list = get(written, "all", "/api/v1/pods").await.unwrap();
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert!(list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().is_err(), "a list stays composite");
    let index = |pod: &serde_json::Value| {
        let version: u64 = pod["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        (pod["metadata"]["annotations"]["tributary.dev/cluster"].as_str().unwrap().to_owned(), version % 10_000)
    };
    list["items"].as_array().unwrap().iter().map(index).collect()
}

#[tokio::test]
async fn numbers_outlive_clusters_and_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two, three) = (member("one").await, member("two").await, member("three").await);
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    let (source_text, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let arguments = [&arguments[..], &["--item-resource-versions", "integer"]].concat();
    let expect = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, index)| ((*name).to_owned(), *index)).collect();
    let runs: [(Vec<&SimulatedCluster>, BTreeMap<String, u64>); 3] = [
        (vec![&one, &two], expect(&[("one", 0), ("two", 1)])),
        (vec![&two, &three], expect(&[("two", 1), ("three", 2)])),
        (vec![&three, &one], expect(&[("three", 2), ("one", 0)])),
    ];
    for (members, expected) in runs {
        std::fs::write(&source, kubeconfig(members)).unwrap();
        let mut program = Program::start(&arguments, directory.path());
        program.ready().await;
        assert_eq!(indices(&written).await, expected);
        program.signal("TERM");
        assert!(program.end().await.success());
    }
    let kept = directory.path().join(".local/share/tributary/cluster-indices.json");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    // What is given by a file is held against it.
    let config = directory.path().join("clusters.yaml");
    let taken = "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: { name: new }\nspec: { index: 1, \
                 kubeconfig: { path: members.kubeconfig, context: three } }\n---\napiVersion: tributary.dev/v1alpha1\nkind: \
                 ResourceRegistry\nmetadata: { name: r }\nspec: { resources: ['*'], itemResourceVersions: Integer }\n";
    std::fs::write(&config, taken).unwrap();
    let mut program = Program::start(&["serve", "--config", config.to_str().unwrap()], directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let errors = program.errors().await;
    assert!(errors.contains("UpstreamCluster new: spec.index: 1 was given to cluster two before"), "{errors}");
}

#[tokio::test]
async fn the_users_own_kubeconfig_is_joined_and_left() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (member("one").await, member("two").await);
    let config = directory.path().join(".kube/config");
    std::fs::create_dir(config.parent().unwrap()).unwrap();
    let text = |members: &[&SimulatedCluster]| format!("# mine\n{}", kubeconfig(members.iter().copied()));
    std::fs::write(&config, text(&[&one])).unwrap();
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o640)).unwrap();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--merge-into-kubeconfig"];
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=one"));
    assert_eq!(contexts(&config), ["one", "tributary-all", "tributary-one"]);
    let current = |config: &Path| Kubeconfig::read_from(config).unwrap().current_context;
    assert_eq!(current(&config).as_deref(), Some("one"));
    // It holds a token now, which its group could read.
    assert_eq!(std::fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(get(&config, "tributary-all", "/readyz").await.unwrap(), "ok");
    assert!(get(&config, "tributary-one", "/api/v1/namespaces?limit=1").await.is_ok());
    program.signal("HUP");
    program.logged("configuration reloaded", 1).await;
    assert!(get(&config, "tributary-all", "/readyz?verbose").await.unwrap().contains("one"));

    // A cluster joins, and whoever wrote the file forgot what was put in.
    std::fs::write(&config, text(&[&one, &two])).unwrap();
    let expected = ["one", "two", "tributary-all", "tributary-one", "tributary-two"];
    wait_for_contexts(&config, &expected).await;
    program.child.kill().await.unwrap();
    let mut program = Program::start(&arguments, directory.path());
    assert!(program.ready().await.ends_with("clusters=one,two"), "its own contexts are not served");
    assert_eq!(contexts(&config), expected);
    assert_eq!(get(&config, "tributary-all", "/readyz").await.unwrap(), "ok", "the new port is there");
    program.child.kill().await.unwrap();

    let mut removal = Program::start(&["kubeconfig", "remove"], directory.path());
    let said = removal.ready().await;
    assert!(said.ends_with("/.kube/config: tributary-all, tributary-one, tributary-two"), "{said}");
    assert!(removal.end().await.success());
    assert_eq!(std::fs::read_to_string(&config).unwrap(), text(&[&one, &two]), "every byte");

    std::fs::write(&config, "contexts:\n- name: [hunter2\n").unwrap();
    let mut program = Program::start(&[&arguments[..], &["--config", "none.yaml"]].concat(), directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let message = program.errors().await;
    assert!(message.contains("does not parse at line") && !message.contains("hunter2"), "{message}");
}

/// What no log may hold: credentials, queries (exec's hold commands), bodies. Not even at the level that says most.
#[tokio::test]
async fn vulndb_4074_no_secret_is_logged_at_any_level() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let mut program = Program::start(&[&arguments[..], &["--log-level", "trace"]].concat(), directory.path());
    program.ready().await;
    let objects = "/api/v1/namespaces/default/configmaps";
    let object = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"s","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"applied-hunter2"}},"data":{"password":"body-hunter2"},"binaryData":{"p":"Ym9keS1odW50ZXIy"}}"#;
    let (json, yaml, patch) = ("application/json", "application/yaml", "application/merge-patch+json");
    for (method, path, content_type, body) in [
        ("POST", objects.to_owned(), json, object),
        ("GET", format!("{objects}?labelSelector=query-hunter2"), json, ""),
        ("GET", format!("{objects}?labelSelector=query-hunter2,,=="), json, ""),
        ("GET", format!("{objects}/s"), json, ""),
        ("PATCH", format!("{objects}/s"), patch, r#"{"data":{"p":"body-hunter2"}}"#),
        ("POST", objects.to_owned(), json, r#"{"kind":"ConfigMap" body-hunter2"#),
        ("POST", objects.to_owned(), yaml, "kind: [body-hunter2"),
        ("PUT", format!("/clusters/one{objects}/s"), json, r#"{"kind":"ConfigMap" body-hunter2"#),
        ("POST", "/clusters/one/api/v1/namespaces/default/pods/p/exec?command=argv-hunter2".to_owned(), json, ""),
        ("POST", "/api/v1/namespaces/default/pods/p/exec?command=argv-hunter2".to_owned(), json, ""),
        ("GET", "/api/v1/namespaces/default/pods/p/proxy/?token=query-hunter2".to_owned(), json, ""),
        ("DELETE", format!("{objects}/s?token=query-hunter2"), json, ""),
    ] {
        for token in [None, Some("wrong-hunter2")] {
            let mut config = config(&written, "all").await;
            if let Some(token) = token {
                config.auth_info.token = Some(token.to_owned().into());
            }
            let client = kube::Client::try_from(config).unwrap();
            let request = http::Request::builder().method(method).uri(&path).header("content-type", content_type);
            let request =
                request.header("impersonate-extra-token", "extra-hunter2").header("cookie", "session=hunter2");
            // Most are refused, and the refusals are what may be logged.
            let _ = client.request_text(request.body(body.as_bytes().to_vec()).unwrap()).await;
        }
    }
    one.control().disconnect();
    get(&written, "all", objects).await.unwrap();
    program.signal("TERM");
    assert!(program.end().await.success());
    let log = program.errors().await;
    assert!(log.contains(objects) && log.contains("status=401"), "requests are logged at this level: {log}");
    let own = std::fs::read_to_string(directory.path().join(".local/share/tributary/token")).unwrap();
    for secret in ["hunter2", "Ym9keS1odW50ZXIy", own.trim(), one.token()] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}
