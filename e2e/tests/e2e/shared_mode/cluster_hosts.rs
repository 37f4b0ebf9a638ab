//! Tests clusters with separate host names, over two real members with the real kubectl. A kubeconfig for the host of a
//! cluster must work like a kubeconfig for the bare cluster.

use super::{SOON, grant, make_config_map, reads_config_maps};
use crate::context::{Case, TestContext, cases, eventually};
use crate::kubectl::pod;
use anyhow::{Context, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tributary_e2e::kubeconfig::ContextParts;
use tributary_e2e::{Kubectl, PeopleAuthority, TestCluster, Tributary, guard, kubeconfig, namespace, tributary};

/// Host name of the merged view.
const ALL: &str = "all.fleet.test";
/// Host name of the first member. The host has a separate serving certificate and separate client certificate
/// authorities.
const FIRST: &str = "member1.fleet.test";
/// Host name of the second member, which uses the certificate and client certificate authorities of the process.
const SECOND: &str = "member2.fleet.test";
/// Host name with a serving certificate (`--tls-sni-cert-key`) but without a cluster.
const NAMED: &str = "named.fleet.test";

pub(super) fn cases() -> Vec<Case> {
    cases!["shared_mode::cluster_hosts";
        cluster_host_behaves_like_the_native_api, cluster_host_accepts_only_client_certificates_of_the_clusters_authority,
        cluster_host_certificates_and_authorities_are_reloaded,
        cluster_host_watch_ends_when_its_client_authority_is_removed,
        host_converted_from_kubegateway_accepts_tokens_reviewed_by_its_cluster,
    ]
}

/// Endpoint whose host names are not in DNS. Clients connect to the hosts through a proxy.
struct Endpoint {
    tributary: Arc<Tributary>,
    members: [Arc<TestCluster>; 2],
    /// Certificate authority of the serving certificates.
    servers: PeopleAuthority,
    /// Certificate authority of the clients, for all hosts except the first member's host.
    people: PeopleAuthority,
    people_of_first: PeopleAuthority,
    address: SocketAddr,
    proxy: SocketAddr,
    folder: tempfile::TempDir,
}

impl Endpoint {
    async fn start(context: &TestContext) -> anyhow::Result<Self> {
        let members = context.fixture.pair().await?.clone();
        let folder = guard::temporary_folder("hosts")?;
        let file = |name: &str| folder.path().join(name);
        let [servers, people, people_of_first] =
            [PeopleAuthority::new("servers")?, PeopleAuthority::new("people")?, PeopleAuthority::new("people")?];
        write_pair(folder.path(), "all", &servers.serving(&[ALL, SECOND, "127.0.0.1"])?)?;
        write_pair(folder.path(), "first", &servers.serving(&[FIRST])?)?;
        write_pair(folder.path(), "named", &servers.serving(&[NAMED])?)?;
        fs::write(file("people.crt"), people.pem())?;
        fs::write(file("people-of-first.crt"), people_of_first.pem())?;
        fs::create_dir(file("clusters"))?;
        let own = json!({"certificateFile": file("first.crt"), "keyFile": file("first.key"),
            "clientCAFile": file("people-of-first.crt")});
        for (member, fields) in members
            .iter()
            .zip([json!({"serverNames": [FIRST], "secureServing": own}), json!({"serverNames": [SECOND]})])
        {
            let path = file("clusters").join(format!("{}.json", member.name()));
            fs::write(path, upstream_cluster(member, &fields)?)?;
        }
        let tributary = Tributary::configured(&file("clusters"))
            .shared(&file("people.crt"))
            .argument(format!("--tls-cert-file={}", file("all.crt").display()))
            .argument(format!("--tls-private-key-file={}", file("all.key").display()))
            .argument(format!("--tls-sni-cert-key={},{}", file("named.crt").display(), file("named.key").display()))
            .argument(format!("--merged-host={ALL}"))
            .start()
            .await?;
        let tributary = context.fixture.watch_log(tributary).await;
        let address = tributary.url().trim_start_matches("https://").parse()?;
        let proxy = proxy_to(address).await?;
        Ok(Self { tributary, members, servers, people, people_of_first, address, proxy, folder })
    }

    /// Writes a kubeconfig for a host. Its proxy connects to the endpoint.
    fn kubeconfig(&self, host: &str, user: &Value) -> anyhow::Result<PathBuf> {
        let proxy = format!("http://{}", self.proxy);
        self.kubeconfig_with(json!({"server": format!("https://{host}:6443"), "proxy-url": proxy}), user)
    }

    fn kubeconfig_with(&self, mut cluster: Value, user: &Value) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join(namespace::unique_name("person"));
        cluster["certificate-authority-data"] = json!(STANDARD.encode(self.servers.pem()));
        kubeconfig::write_entries(&path, &[ContextParts { name: "host".to_owned(), cluster, user: user.clone() }])?;
        Ok(path)
    }

    async fn kubectl(&self, context: &TestContext, host: &str, user: &Value) -> anyhow::Result<Kubectl> {
        Kubectl::new(context.fixture.tools().await?, &self.kubeconfig(host, user)?)
    }

    /// Opens a TLS connection with this server name (SNI) and a user's client certificate.
    async fn connect(&self, server_name: &str, user: Option<&Value>) -> anyhow::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.servers.pem().as_bytes())?)?;
        let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
        let config = match user {
            None => builder.with_no_client_auth(),
            Some(user) => {
                let pem = |field: &str| STANDARD.decode(user[field].as_str().unwrap_or_default());
                let chain = vec![CertificateDer::from_pem_slice(&pem("client-certificate-data")?)?];
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&pem("client-key-data")?)?)?
            }
        };
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(server_name.to_owned())?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }

    /// Reads the serving certificate that the endpoint presents for a server name (SNI).
    async fn leaf(&self, server_name: &str) -> anyhow::Result<CertificateDer<'static>> {
        let stream = self.connect(server_name, None).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).context("a certificate")?;
        Ok(shown.clone().into_owned())
    }

    /// Sends a request with the `Host` header `host`, on a connection with this TLS server name. Returns the raw
    /// response.
    async fn ask(&self, server_name: &str, user: Option<&Value>, host: &str, path: &str) -> anyhow::Result<String> {
        let mut stream = self.connect(server_name, user).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

fn write_pair(folder: &Path, name: &str, (certificate, key): &(String, String)) -> anyhow::Result<()> {
    for (suffix, text) in [("crt", certificate), ("key", key)] {
        let next = folder.join("next");
        fs::write(&next, text)?;
        fs::rename(&next, folder.join(format!("{name}.{suffix}")))?;
    }
    Ok(())
}

fn upstream_cluster(member: &TestCluster, fields: &Value) -> anyhow::Result<String> {
    let access = member.access();
    let mut spec = json!({
        "endpoints": [access.server], "caData": STANDARD.encode(&access.certificate_authority),
        "credentials": {"token": access.token},
    });
    spec.as_object_mut().context("a spec")?.extend(fields.as_object().context("fields")?.clone());
    let (kind, metadata) = ("UpstreamCluster", json!({"name": member.name()}));
    Ok(json!({"apiVersion": "tributary.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}).to_string())
}

/// Starts a proxy that connects to the same address for every host.
async fn proxy_to(address: SocketAddr) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let own = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut client = BufReader::new(stream);
                let mut line = String::from("CONNECT");
                while !line.trim_end().is_empty() {
                    line.clear();
                    client.read_line(&mut line).await?;
                }
                let mut server = TcpStream::connect(address).await?;
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    Ok(own)
}

fn rules() -> Value {
    json!([{"apiGroups": [""], "verbs": ["get", "list", "watch", "create", "delete"],
        "resources": ["pods", "pods/log", "pods/exec", "configmaps"]}])
}

async fn cluster_host_behaves_like_the_native_api(context: TestContext) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(&context).await?;
    let [first, second] = &endpoint.members;
    let (ann, own) = (namespace::unique_name("ann"), context.namespace("hosts", &endpoint.members).await?);
    grant(first, &own, &ann, &ann, rules()).await?;
    make_config_map(first, &own, "here", 1).await?;
    make_config_map(second, &own, "elsewhere", 1).await?;
    let path = format!("/api/v1/namespaces/{own}/pods");
    first.http().post(&path, &pod("one", &format!("{}-node-0", first.name()))).send().await?.expect(201)?;
    let user = endpoint.people_of_first.user(&ann, &[])?;
    let kubectl = endpoint.kubectl(&context, FIRST, &user).await?;

    // The objects of the first member must be the same as at the member, byte for byte, and objects of the second
    // member must be absent.
    let mine = ["-n", &*own, "get", "configmaps", "-o", "json", "--show-managed-fields"];
    let listed: Value = serde_json::from_str(&kubectl.ok(&mine).await?)?;
    let named = |name: &str| {
        let mut items = listed["items"].as_array().into_iter().flatten();
        items.find(|item| item["metadata"]["name"] == name).cloned()
    };
    let native = first.http().get(&format!("/api/v1/namespaces/{own}/configmaps/here")).send().await?.expect(200)?;
    let native: Value = native.json()?;
    let here = named("here").context("the object")?;
    ensure!(here["metadata"] == native["metadata"] && named("elsewhere").is_none(), "{listed}");
    for (path, expected) in [("/healthz", "ok"), ("/livez", "ok")] {
        ensure!(kubectl.ok(&["get", "--raw", path]).await? == expected, "{path}");
    }
    // Paths of Tributary itself must not exist at the host of a cluster.
    let refused = kubectl.run(&["get", "--raw", "/tributary/status"]).await?;
    ensure!(refused.code != Some(0) && refused.stderr.contains("cannot get path"), "{}", refused.stderr);
    let refused = kubectl.run(&["get", "--raw", &format!("/clusters/{}/api", second.name())]).await?;
    ensure!(refused.code != Some(0) && refused.stderr.contains("cannot get path"), "{}", refused.stderr);
    ensure!(kubectl.ok(&["explain", "pods.spec.nodeName"]).await?.contains("nodeName"), "its OpenAPI");
    let who = kubectl.ok(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await?;
    ensure!(who == ann, "{who}");

    // The test also sends long-running requests and a write.
    let running = ["-n", &*own, "get", "pod", "one", "-o", "jsonpath={.status.phase}"];
    eventually(SOON, async || {
        let shown = kubectl.ok(&running).await?;
        ensure!(shown == "Running", "the pod is {shown}");
        Ok(())
    })
    .await?;
    let echoed = kubectl.ok(&["-n", &own, "exec", "one", "--", "sh", "-c", "echo begun"]).await?;
    ensure!(echoed.contains("begun"), "{echoed}");
    let logged = kubectl.ok(&["-n", &own, "logs", "one"]).await?;
    ensure!(logged.contains(&format!("hello from {}", first.name())), "{logged}");
    let mut watch = kubectl.spawn(&["-n", &own, "get", "configmaps", "-w"])?;
    watch.wait_for_output(SOON, |text| text.contains("here")).await?;
    kubectl.ok(&["-n", &own, "create", "configmap", "made"]).await?;
    watch.wait_for_output(SOON, |text| text.contains("made")).await?;
    first.http().get(&format!("/api/v1/namespaces/{own}/configmaps/made")).send().await?.expect(200)?;

    // The URL has an IP address, so only the TLS handshake contains the host name.
    let cluster = json!({"server": endpoint.tributary.url(), "tls-server-name": FIRST});
    let by_address = Kubectl::new(context.fixture.tools().await?, &endpoint.kubeconfig_with(cluster, &user)?)?;
    let names = by_address.ok(&["-n", &own, "get", "configmaps", "-o", "name"]).await?;
    ensure!(names.contains("configmap/made") && !names.contains("elsewhere"), "{names}");
    Ok(())
}

/// Also tests requests whose `Host` header differs from the TLS server name of their connection.
async fn cluster_host_accepts_only_client_certificates_of_the_clusters_authority(
    context: TestContext,
) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(&context).await?;
    let [first, second] = &endpoint.members;
    let (ann, own) = (namespace::unique_name("ann"), context.namespace("hosts", &endpoint.members).await?);
    for member in [first, second] {
        grant(member, &own, &ann, &ann, rules()).await?;
        make_config_map(member, &own, member.name(), 1).await?;
    }
    let (of_all, of_first) = (endpoint.people.user(&ann, &[])?, endpoint.people_of_first.user(&ann, &[])?);
    let list = ["-n", &*own, "get", "configmaps", "-o", "name"];
    for (user, host, seen) in [
        (&of_all, ALL, &[first.name(), second.name()][..]),
        (&of_all, SECOND, &[second.name()]),
        (&of_all, FIRST, &[]),
        (&of_first, FIRST, &[first.name()]),
        (&of_first, SECOND, &[]),
        (&of_first, ALL, &[]),
    ] {
        let kubectl = endpoint.kubectl(&context, host, user).await?;
        eventually(SOON, async || {
            let answer = kubectl.run(&list).await?;
            ensure!(seen.is_empty() == answer.stderr.contains("You must be logged in"), "{host}: {}", answer.stderr);
            for member in [first, second] {
                let is_seen = answer.stdout.lines().any(|line| line == format!("configmap/{}", member.name()));
                ensure!(is_seen == seen.contains(&member.name()), "{host}: {}", answer.stdout);
            }
            Ok(())
        })
        .await?;
    }
    let answer = endpoint.ask(ALL, Some(&of_all), "nope.example", "/api/v1/pods").await?;
    ensure!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("retry-after: 60"), "{answer}");
    ensure!(
        answer.contains("\"kind\":\"Status\"") && !answer.contains("fleet.test") && !answer.contains("member"),
        "{answer}"
    );
    let answer = endpoint.ask(SECOND, Some(&of_all), FIRST, "/api/v1/pods").await?;
    ensure!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    let answer = endpoint.ask(FIRST, Some(&of_first), SECOND, "/api/v1/pods").await?;
    ensure!(answer.starts_with("HTTP/1.1 421 "), "{answer}");
    // Liveness probes use an IP address as host, and must be able to read `/livez` without a certificate.
    let answer = endpoint.ask(ALL, None, "10.0.0.1", "/livez").await?;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = endpoint.ask(FIRST, None, FIRST, "/livez").await?;
    ensure!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    Ok(())
}

async fn cluster_host_certificates_and_authorities_are_reloaded(context: TestContext) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(&context).await?;
    let ann = endpoint.people_of_first.user("ann", &[])?;
    ensure!(endpoint.ask(FIRST, Some(&ann), FIRST, "/version").await?.starts_with("HTTP/1.1 200 "));
    // Makes three serving certificates: for the first member's host, for the process, and for a host name without a
    // cluster.
    let pairs: [(&str, &[&str]); 3] = [("first", &[FIRST]), ("all", &[ALL, SECOND, "127.0.0.1"]), ("named", &[NAMED])];
    for (file, names) in pairs {
        let others: Vec<_> = pairs.iter().filter(|(other, _)| *other != file).map(|(_, names)| names[0]).collect();
        let mut before = Vec::new();
        for other in &others {
            before.push(endpoint.leaf(other).await?);
        }
        let pair = endpoint.servers.serving(names)?;
        let next = CertificateDer::from_pem_slice(pair.0.as_bytes())?;
        for name in names {
            ensure!(endpoint.leaf(name).await? != next, "{name}");
        }
        write_pair(endpoint.folder.path(), file, &pair)?;
        for name in names {
            eventually(SOON, async || {
                ensure!(endpoint.leaf(name).await? == next, "{name}: the former certificate is served");
                Ok(())
            })
            .await?;
        }
        for (other, before) in others.iter().zip(&before) {
            ensure!(endpoint.leaf(other).await? == *before, "{other} has another certificate, by that of {file}");
        }
    }
    let others = PeopleAuthority::new("people")?;
    fs::write(endpoint.folder.path().join("people-of-first.crt"), others.pem())?;
    eventually(SOON, async || {
        let answer = endpoint.ask(FIRST, Some(&ann), FIRST, "/version").await?;
        ensure!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        Ok(())
    })
    .await?;
    let bob = others.user("bob", &[])?;
    ensure!(endpoint.ask(FIRST, Some(&bob), FIRST, "/version").await?.starts_with("HTTP/1.1 200 "));
    Ok(())
}

/// Reads until the stream contains this text.
async fn read_up_to(stream: &mut TlsStream<TcpStream>, told: &mut String, expected: &str) -> anyhow::Result<()> {
    let read = async {
        let mut bytes = [0; 4096];
        while !told.contains(expected) {
            let count = stream.read(&mut bytes).await?;
            ensure!(count > 0, "it ended before {expected:?} was told: {told}");
            told.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        Ok(())
    };
    let read = tokio::time::timeout(SOON, read).await;
    read.with_context(|| format!("{expected:?} was not told"))?
}

async fn cluster_host_watch_ends_when_its_client_authority_is_removed(context: TestContext) -> anyhow::Result<()> {
    let endpoint = Endpoint::start(&context).await?;
    let [first, _] = &endpoint.members;
    let (ann, own) = (namespace::unique_name("ann"), context.namespace("hosts", &endpoint.members).await?);
    grant(first, &own, &ann, &ann, rules()).await?;
    let user = endpoint.people_of_first.user(&ann, &[])?;
    let path = format!("/api/v1/namespaces/{own}/configmaps");
    let is_answered = async |user: &Value, path: &str, expected: &str| {
        eventually(SOON, async || {
            let answer = endpoint.ask(FIRST, Some(user), FIRST, path).await?;
            ensure!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{answer}");
            Ok(())
        })
        .await
    };
    is_answered(&user, &path, "200").await?;
    let mut stream = endpoint.connect(FIRST, Some(&user)).await?;
    let watch =
        format!("GET {path}?watch=1&timeoutSeconds=1800 HTTP/1.1\r\nHost: {FIRST}\r\nConnection: close\r\n\r\n");
    stream.write_all(watch.as_bytes()).await?;
    let mut told = String::new();
    make_config_map(first, &own, "first-one", 1).await?;
    read_up_to(&mut stream, &mut told, "\"first-one\"").await?;

    // A second certificate authority is added. The open watch must continue.
    let (others, authorities) = (PeopleAuthority::new("people")?, endpoint.folder.path().join("people-of-first.crt"));
    fs::write(&authorities, format!("{}{}", endpoint.people_of_first.pem(), others.pem()))?;
    is_answered(&others.user("bob", &[])?, "/version", "200").await?;
    make_config_map(first, &own, "second-one", 1).await?;
    read_up_to(&mut stream, &mut told, "\"second-one\"").await?;

    // The certificate authority of the watch's client is removed. The watch must end.
    fs::write(&authorities, others.pem())?;
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
    ended.context("the watch goes on")?.context("the end of the watch")?;
    is_answered(&user, &path, "401").await
}

/// Makes a KubeGateway manifest of a member with client certificate authorities, which enable shared mode.
fn gateway_manifest(
    member: &TestCluster,
    servers: &PeopleAuthority,
    people: &PeopleAuthority,
) -> anyhow::Result<String> {
    let (access, (certificate, key)) = (member.access(), servers.serving(&[SECOND])?);
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]});
    let spec = json!({
        "servers": [{"endpoint": access.server}],
        "clientConfig": {"bearerToken": STANDARD.encode(&access.token), "serverName": "localhost",
            "caData": STANDARD.encode(&access.certificate_authority)},
        "secureServing": {"certData": STANDARD.encode(certificate), "keyData": STANDARD.encode(key),
            "clientCAData": STANDARD.encode(people.pem())},
        "dispatchPolicies": [{"rules": [all]}],
    });
    let (api_version, kind) = ("proxy.kubegateway.io/v1alpha1", "UpstreamCluster");
    Ok(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": SECOND}, "spec": spec}).to_string())
}

/// Tests a token that is not signed by a ServiceAccount key, so only the cluster can verify it.
async fn host_converted_from_kubegateway_accepts_tokens_reviewed_by_its_cluster(
    context: TestContext,
) -> anyhow::Result<()> {
    let member = Arc::clone(&context.fixture.pair().await?[1]);
    let own = context.namespace("converted", std::slice::from_ref(&member)).await?;
    make_config_map(&member, &own, "here", 1).await?;
    let folder = guard::temporary_folder("converted")?;
    let (manifest, config) = (folder.path().join("gateway.json"), folder.path().join("clusters"));
    let [servers, people] = [PeopleAuthority::new("servers")?, PeopleAuthority::new("people")?];
    fs::write(&manifest, gateway_manifest(&member, &servers, &people)?)?;
    let converted = tributary::run(&["convert", &manifest.display().to_string()]).await?;
    ensure!(converted.code == Some(0) && converted.stderr.contains("tokenReview: true"), "{}", converted.stderr);
    fs::create_dir(&config)?;
    fs::write(config.join("clusters.yaml"), converted.stdout)?;
    // `clientCAData` in the manifest enables shared mode, so the command line needs no flag for it.
    let tributary = Tributary::configured(&config).in_shared_mode().start().await?;
    let tributary = context.fixture.watch_log(tributary).await;
    let proxy = proxy_to(tributary.url().trim_start_matches("https://").parse()?).await?;
    let kubeconfig_of = |token: &str| {
        let path = folder.path().join(namespace::unique_name("person"));
        let cluster = json!({"server": format!("https://{SECOND}:6443"), "proxy-url": format!("http://{proxy}"),
            "certificate-authority-data": STANDARD.encode(servers.pem())});
        let entries = ContextParts { name: "host".to_owned(), cluster, user: json!({"token": token}) };
        kubeconfig::write_entries(&path, &[entries])?;
        anyhow::Ok(path)
    };
    let known = Kubectl::new(context.fixture.tools().await?, &kubeconfig_of(&member.access().token)?)?;
    let guessed = Kubectl::new(context.fixture.tools().await?, &kubeconfig_of("guessed")?)?;
    let list = ["-n", &*own, "get", "configmaps", "-o", "name"];
    // Tributary never sends the administrator's privileged group to a cluster, so the cluster refuses the
    // administrator's request.
    eventually(SOON, async || {
        let refused = known.run(&list).await?;
        ensure!(refused.stderr.contains("User \"admin\" cannot list resource"), "{}", refused.stderr);
        Ok(())
    })
    .await?;
    let refused = guessed.run(&list).await?;
    ensure!(refused.stderr.contains("You must be logged in"), "{}", refused.stderr);
    grant(&member, &own, "admin", "admin", reads_config_maps()).await?;
    eventually(SOON, async || {
        let listed = known.ok(&list).await?;
        ensure!(listed.lines().any(|line| line == "configmap/here"), "{listed}");
        Ok(())
    })
    .await
}
