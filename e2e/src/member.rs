//! Runs a member cluster on loopback ports in a temporary folder: etcd and kube-apiserver, optionally
//! kube-controller-manager and kwok.

use crate::{
    Access, HttpClient, PeopleAuthority, Process, Tools, certificates::TestCertificates, guard, kubeconfig, kwok,
    ports, process,
};
use anyhow::{Context, bail};
use rustix::process::Signal;
use serde_json::json;
use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

/// Timeout for the start of a kube-apiserver. The start takes about 4 s, and much longer on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Longest time between SIGTERM and the end of a server. Afterwards the server is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// The controllers for namespaces, Deployments, aggregated roles and garbage collection. The root CA publisher is left
/// out: it creates an object in every namespace, and tests count objects.
const CONTROLLERS: &str = "namespace-controller,serviceaccount-controller,garbage-collector-controller,\
                           replicaset-controller,deployment-controller,disruption-controller,\
                           clusterrole-aggregation-controller";

/// The common name of kube-apiserver's certificate for aggregated API servers, as kubeadm chooses it.
pub const FRONT_PROXY: &str = "front-proxy-client";

/// The folders of etcd's data and of its last backup.
const DATA: &str = "etcd";
const BACKUP: &str = "etcd.backup";

/// Configures and starts a member.
#[derive(Clone, Debug)]
pub struct MemberBuilder {
    name: String,
    controllers: Option<String>,
    scheduler: Option<PathBuf>,
    service_accounts: bool,
    kwok: bool,
    nodes: usize,
    schedulable: bool,
    apiserver_arguments: Vec<String>,
    authorization: Vec<String>,
    front_proxy: bool,
}

impl MemberBuilder {
    /// Selects whether the member also runs kube-controller-manager, with the few controllers that tests need.
    #[must_use]
    pub fn controllers(mut self, yes: bool) -> Self {
        self.controllers = yes.then(|| CONTROLLERS.to_owned());
        self
    }

    /// Runs kube-controller-manager with this value of its flag `--controllers`.
    #[must_use]
    pub fn controllers_named(mut self, list: &str) -> Self {
        self.controllers = Some(list.to_owned());
        self
    }

    /// Runs this kube-scheduler. Without a scheduler, pods without `nodeName` stay pending.
    #[must_use]
    pub fn scheduler(mut self, program: &Path) -> Self {
        self.scheduler = Some(program.to_owned());
        self
    }

    /// Mounts the token of a service account in pods, as in a complete cluster. kube-apiserver then refuses a pod until
    /// a controller has created the service account of the pod's namespace.
    #[must_use]
    pub fn service_accounts(mut self, yes: bool) -> Self {
        self.service_accounts = yes;
        self
    }

    /// Removes the taint `node.kubernetes.io/not-ready` from ready nodes. In a complete cluster, the node lifecycle
    /// controller removes the taint. No pod is scheduled to a node with the taint.
    #[must_use]
    pub fn schedulable(mut self, yes: bool) -> Self {
        self.schedulable = yes;
        self
    }

    /// Runs kwok, which simulates nodes and their kubelets.
    #[must_use]
    pub fn kwok(mut self, yes: bool) -> Self {
        self.kwok = yes;
        self
    }

    /// Creates `count` Node objects, named `<member>-node-0` and so on. kwok makes them Ready.
    #[must_use]
    pub fn nodes(mut self, count: usize) -> Self {
        self.nodes = count;
        self
    }

    /// Adds a kube-apiserver flag.
    #[must_use]
    pub fn apiserver_argument(mut self, argument: &str) -> Self {
        self.apiserver_arguments.push(argument.to_owned());
        self
    }

    /// Sets these authorization flags of kube-apiserver instead of `--authorization-mode=RBAC`.
    #[must_use]
    pub fn authorization(mut self, flags: &[String]) -> Self {
        self.authorization = flags.to_vec();
        self
    }

    /// Gives kube-apiserver a client certificate for aggregated API servers, and publishes its authority in the
    /// ConfigMap `kube-system/extension-apiserver-authentication`, as in a complete cluster.
    #[must_use]
    pub fn front_proxy(mut self, yes: bool) -> Self {
        self.front_proxy = yes;
        self
    }

    /// Starts the member and waits until it is ready, about 4 s on an idle machine.
    ///
    /// # Errors
    /// When a program does not start or is not ready in time; the message has the end of its log.
    pub async fn start(self, tools: &Tools) -> anyhow::Result<TestCluster> {
        let folder = guard::temporary_folder(&self.name)?;
        let certificates = TestCertificates::generate(&self.name)?;
        certificates.write(folder.path())?;
        let people = PeopleAuthority::new(&format!("the people of {}", self.name))?;
        std::fs::write(folder.path().join("people.crt"), people.pem()).context("write the people's authority")?;
        let token = format!("{:032x}", rand::random::<u128>());
        std::fs::write(folder.path().join("tokens.csv"), format!("{token},admin,admin,\"system:masters\"\n"))
            .context("write the token file")?;
        let front_proxy = PeopleAuthority::new(&format!("the front proxies of {}", self.name))?;
        if self.front_proxy {
            let (certificate, key) = front_proxy.client(FRONT_PROXY, &[])?;
            for (file, text) in [
                ("front-proxy-ca.crt", front_proxy.pem()),
                ("front-proxy.crt", &certificate),
                ("front-proxy.key", &key),
            ] {
                std::fs::write(folder.path().join(file), text).with_context(|| format!("write {file}"))?;
            }
        }
        let ports = Ports {
            etcd: ports::free_port()?,
            etcd_peer: ports::free_port()?,
            apiserver: ports::free_port()?,
            controller_manager: ports::free_port()?,
            scheduler: ports::free_port()?,
            kubelet: ports::free_port()?,
        };
        let access = Access {
            name: self.name.clone(),
            server: format!("https://127.0.0.1:{}", ports.apiserver),
            certificate_authority: certificates.authority.clone(),
            token,
        };
        kubeconfig::write(&folder.path().join("kubeconfig"), &[&access])?;
        if self.kwok {
            kwok::write_configuration(folder.path(), tools.kwok_stages(), &self.name, ports.etcd)?;
        }
        let http = HttpClient::from_access(&access).await?;
        let member = TestCluster {
            builder: self,
            tools: tools.clone(),
            folder,
            ports,
            access,
            http,
            people,
            front_proxy,
            processes: Mutex::default(),
        };
        member.start_again().await?;
        member.create_nodes().await?;
        Ok(member)
    }
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    etcd: u16,
    etcd_peer: u16,
    apiserver: u16,
    controller_manager: u16,
    scheduler: u16,
    kubelet: u16,
}

#[derive(Debug, Default)]
struct MemberProcesses {
    // Rust drops fields in the order of their declaration. Clients are declared before their servers, because otherwise
    // their logs end with connection errors.
    kwok: Option<Process>,
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    apiserver: Option<Process>,
    further_apiservers: BTreeMap<u16, Process>,
    etcd: Option<Process>,
}

/// A running member. Dropping it kills the processes and removes the folder.
#[derive(Debug)]
pub struct TestCluster {
    builder: MemberBuilder,
    tools: Tools,
    // The processes are declared before `folder`, so that they end before the folder is removed.
    processes: Mutex<MemberProcesses>,
    folder: tempfile::TempDir,
    ports: Ports,
    access: Access,
    http: HttpClient,
    people: PeopleAuthority,
    front_proxy: PeopleAuthority,
}

impl TestCluster {
    /// Configures a member that runs only etcd and kube-apiserver.
    #[must_use]
    pub fn builder(name: &str) -> MemberBuilder {
        MemberBuilder {
            name: name.to_owned(),
            controllers: None,
            scheduler: None,
            service_accounts: false,
            kwok: false,
            nodes: 0,
            schedulable: false,
            apiserver_arguments: Vec::new(),
            authorization: vec!["--authorization-mode=RBAC".to_owned()],
            front_proxy: false,
        }
    }

    /// The name of the member, which is also the name of its kubeconfig context.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.builder.name
    }

    /// Temporary folder of the member. Tests may create files in this folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address and credentials of the member.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access.clone()
    }

    /// Path of a kubeconfig that contains only this member.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// HTTP client of the member's kube-apiserver, with the administrator's token.
    #[must_use]
    pub fn http(&self) -> &HttpClient {
        &self.http
    }

    /// Creates an HTTP client of the member's kube-apiserver, with a client certificate of this user and these groups.
    ///
    /// # Errors
    /// If the certificate cannot be made.
    pub async fn http_of(&self, name: &str, groups: &[&str]) -> anyhow::Result<HttpClient> {
        let folder = guard::temporary_folder("person")?;
        let path = folder.path().join("kubeconfig");
        self.write_kubeconfig_of(&path, name, groups)?;
        HttpClient::from_kubeconfig(&path, None).await
    }

    /// The certificate authority that the member trusts for clients.
    pub fn people(&self) -> &PeopleAuthority {
        &self.people
    }

    /// The authority of kube-apiserver's certificate for aggregated API servers. Unused without
    /// [`MemberBuilder::front_proxy`].
    pub fn front_proxy(&self) -> &PeopleAuthority {
        &self.front_proxy
    }

    /// Writes a kubeconfig with a client certificate for a user with this name and these groups.
    ///
    /// # Errors
    /// If the certificate cannot be made, or the file cannot be written.
    pub fn write_kubeconfig_of(&self, path: &Path, name: &str, groups: &[&str]) -> anyhow::Result<()> {
        let user = self.people.user(name, groups)?;
        kubeconfig::write_entries(path, &[kubeconfig::ContextParts { user, ..self.access.entries() }])
    }

    /// Creates a client of the member's kube-apiserver, with the crate `kube`.
    ///
    /// # Errors
    /// If the kubeconfig cannot be used.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        let config = kubeconfig::config(&self.kubeconfig(), None).await?;
        kube::Client::try_from(config).context("make a client")
    }

    /// Process id of kube-apiserver, for measurements; `None` while it is stopped.
    pub async fn apiserver_pid(&self) -> Option<u32> {
        self.processes.lock().await.apiserver.as_ref().map(Process::pid)
    }

    /// Process id of etcd, for measurements; `None` while it is stopped.
    pub async fn etcd_pid(&self) -> Option<u32> {
        self.processes.lock().await.etcd.as_ref().map(Process::pid)
    }

    /// Ends kube-apiserver and etcd in order (SIGTERM).
    ///
    /// # Errors
    /// When one of the two processes does not end.
    pub async fn stop(&self) -> anyhow::Result<()> {
        let mut processes = self.processes.lock().await;
        for process in [processes.apiserver.take(), processes.etcd.take()].iter_mut().flatten() {
            process.terminate(STOP_PATIENCE).await?;
        }
        Ok(())
    }

    /// Kills kube-apiserver and etcd with SIGKILL, so that they cannot shut down in order.
    ///
    /// # Errors
    /// If one of the two processes does not end.
    pub async fn kill9(&self) -> anyhow::Result<()> {
        let mut processes = self.processes.lock().await;
        for process in [processes.apiserver.take(), processes.etcd.take()].iter_mut().flatten() {
            process.kill().await?;
        }
        Ok(())
    }

    /// Starts an additional kube-apiserver on the same etcd and returns its port on 127.0.0.1. The process lives as
    /// long as the member.
    ///
    /// # Errors
    /// When the process does not start or is not ready in time.
    pub async fn start_another_apiserver(&self) -> anyhow::Result<u16> {
        let port = ports::free_port()?;
        self.start_apiserver_at(port).await?;
        Ok(port)
    }

    /// Restarts the kube-apiserver at a port as in an upgrade: sends SIGTERM, waits for the end, and starts a new
    /// process.
    ///
    /// # Errors
    /// When the process does not end, or the new one is not ready in time.
    pub async fn restart_apiserver(&self, port: u16) -> anyhow::Result<()> {
        let ending = {
            let mut processes = self.processes.lock().await;
            match port == self.ports.apiserver {
                true => processes.apiserver.take(),
                false => processes.further_apiservers.remove(&port),
            }
        };
        ending.context("no kube-apiserver has this port")?.terminate(STOP_PATIENCE).await?;
        match port == self.ports.apiserver {
            true => self.start_again().await,
            false => self.start_apiserver_at(port).await,
        }
    }

    async fn start_apiserver_at(&self, port: u16) -> anyhow::Result<()> {
        let name = format!("kube-apiserver-{port}");
        let process = self.spawn(&name, self.apiserver(port))?;
        self.processes.lock().await.further_apiservers.insert(port, process);
        let server = format!("https://127.0.0.1:{port}");
        let http = HttpClient::from_access(&Access { server, ..self.access() }).await?;
        let deadline = Instant::now() + READY_TIMEOUT;
        while !matches!(http.get("/readyz").send().await, Ok(answer) if answer.status.is_success()) {
            if Instant::now() > deadline {
                bail!("the kube-apiserver of {} at {port} is not ready\n{}", self.name(), self.log_tail(&name));
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Kills kube-apiserver (SIGKILL) but not etcd. The data survives, and a restarted kube-apiserver rebuilds its
    /// watch cache.
    ///
    /// # Errors
    /// If the process does not end.
    pub async fn kill_apiserver(&self) -> anyhow::Result<()> {
        let process = self.processes.lock().await.apiserver.take();
        match process {
            Some(mut process) => process.kill().await.map(drop),
            None => Ok(()),
        }
    }

    /// Takes a backup: stops kube-apiserver and etcd, copies etcd's data and starts both again.
    ///
    /// # Errors
    /// When a program does not end or start, or the data cannot be copied.
    pub async fn back_up(&self) -> anyhow::Result<()> {
        self.stop().await?;
        self.replace_data(BACKUP, DATA).await?;
        self.start_again().await
    }

    /// Restores the last backup, as after a disaster. Later changes are lost, and etcd assigns their revisions again to
    /// new changes.
    ///
    /// # Errors
    /// If [`back_up`](Self::back_up) would fail, or there is no backup.
    pub async fn restore(&self) -> anyhow::Result<()> {
        self.kill9().await?;
        self.replace_data(DATA, BACKUP).await?;
        self.start_again().await
    }

    /// Replaces the cluster by a new cluster at the same address: deletes all data, so that all objects get new UIDs.
    ///
    /// # Errors
    /// If a program does not end or start, or the data cannot be removed.
    pub async fn make_anew(&self) -> anyhow::Result<()> {
        self.kill9().await?;
        tokio::fs::remove_dir_all(self.folder().join(DATA)).await.context("remove etcd's data")?;
        self.start_again().await
    }

    /// Replaces the folder `to` by a copy of the folder `from`. Both are folders of this member.
    async fn replace_data(&self, to: &str, from: &str) -> anyhow::Result<()> {
        let (to, from) = (self.folder().join(to), self.folder().join(from));
        tokio::task::spawn_blocking(move || {
            if to.exists() {
                std::fs::remove_dir_all(&to).with_context(|| format!("remove {}", to.display()))?;
            }
            copy_folder(&from, &to)
        })
        .await
        .context("join")?
    }

    /// Suspends kube-apiserver (SIGSTOP). Its connections stay open, but no data arrives.
    ///
    /// # Errors
    /// If kube-apiserver is not running.
    pub async fn freeze(&self) -> anyhow::Result<()> {
        self.signal_apiserver(Signal::STOP).await
    }

    /// Resumes a suspended kube-apiserver (SIGCONT).
    ///
    /// # Errors
    /// If kube-apiserver is not running.
    pub async fn thaw(&self) -> anyhow::Result<()> {
        self.signal_apiserver(Signal::CONT).await
    }

    /// Suspends etcd (SIGSTOP): kube-apiserver answers only from its watch cache, which gets no events.
    ///
    /// # Errors
    /// When etcd is not running.
    pub async fn freeze_etcd(&self) -> anyhow::Result<()> {
        self.signal_etcd(Signal::STOP).await
    }

    /// Resumes a suspended etcd (SIGCONT).
    ///
    /// # Errors
    /// If etcd is not running.
    pub async fn thaw_etcd(&self) -> anyhow::Result<()> {
        self.signal_etcd(Signal::CONT).await
    }

    async fn signal_etcd(&self, signal: Signal) -> anyhow::Result<()> {
        let processes = self.processes.lock().await;
        processes.etcd.as_ref().context("etcd is not running")?.signal(signal)
    }

    /// The port of kube-apiserver on 127.0.0.1.
    #[must_use]
    pub fn apiserver_port(&self) -> u16 {
        self.ports.apiserver
    }

    async fn signal_apiserver(&self, signal: Signal) -> anyhow::Result<()> {
        let processes = self.processes.lock().await;
        processes.apiserver.as_ref().context("kube-apiserver is not running")?.signal(signal)
    }

    /// Starts the stopped programs with the same ports and data, and waits until all are ready.
    ///
    /// # Errors
    /// If a program does not start or is not ready in time. The message contains the end of its log.
    pub async fn start_again(&self) -> anyhow::Result<()> {
        let mut processes = self.processes.lock().await;
        if processes.etcd.is_none() {
            processes.etcd = Some(self.spawn("etcd", self.etcd())?);
            ports::wait_until_open(self.ports.etcd, READY_TIMEOUT).await.with_context(|| self.log_tail("etcd"))?;
        }
        if processes.apiserver.is_none() {
            processes.apiserver = Some(self.spawn("kube-apiserver", self.apiserver(self.ports.apiserver))?);
        }
        self.wait_until_ready(&mut processes).await?;
        if let Some(controllers) =
            self.builder.controllers.as_deref().filter(|_| processes.controller_manager.is_none())
        {
            let command = self.controller_manager(controllers);
            processes.controller_manager = Some(self.spawn("kube-controller-manager", command)?);
        }
        if let Some(program) = self.builder.scheduler.as_deref().filter(|_| processes.scheduler.is_none()) {
            processes.scheduler = Some(self.spawn("kube-scheduler", self.scheduler(program))?);
        }
        if self.builder.kwok && processes.kwok.is_none() {
            processes.kwok = Some(self.spawn("kwok", self.kwok())?);
        }
        Ok(())
    }

    async fn wait_until_ready(&self, processes: &mut MemberProcesses) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            for process in [&mut processes.etcd, &mut processes.apiserver].into_iter().flatten() {
                if let Some(status) = process.exit_status() {
                    bail!("{} of {} ended: {status}\n{}", process.name(), self.name(), process.log_tail(20));
                }
            }
            // kube-apiserver reports ready before it has created the namespace `default`, so the test also waits for
            // this namespace.
            if self.answers_ok("/readyz").await && self.answers_ok("/api/v1/namespaces/default").await {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{} is not ready after {READY_TIMEOUT:?}\n{}", self.name(), self.log_tail("kube-apiserver"));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    async fn answers_ok(&self, path: &str) -> bool {
        let asked = tokio::time::timeout(Duration::from_secs(5), self.http.get(path).send());
        matches!(asked.await, Ok(Ok(answer)) if answer.status.is_success())
    }

    async fn create_nodes(&self) -> anyhow::Result<()> {
        for index in 0..self.builder.nodes {
            let name = format!("{}-node-{index}", self.name());
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "type": "kwok"}},
            });
            self.http.post("/api/v1/nodes", &node).send().await?.expect(201)?;
        }
        if self.builder.kwok {
            for index in 0..self.builder.nodes {
                let name = format!("{}-node-{index}", self.name());
                self.wait_until_node_is_ready(&name).await?;
                if self.builder.schedulable {
                    self.remove_taints(&name).await?;
                }
            }
        }
        Ok(())
    }

    async fn wait_until_node_is_ready(&self, name: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let node = self.http.get(&format!("/api/v1/nodes/{name}")).send().await?.expect(200)?.json()?;
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True") {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("node {name} is not ready\n{}", self.log_tail("kwok"));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn remove_taints(&self, node: &str) -> anyhow::Result<()> {
        let patch = json!({"spec": {"taints": null}});
        self.http.patch(&format!("/api/v1/nodes/{node}"), "merge-patch+json", &patch).send().await?.expect(200)?;
        Ok(())
    }

    /// Appends a line to the log that `kubectl logs` shows for every pod of this member.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn append_container_log(&self, text: &str) -> anyhow::Result<()> {
        let mut log = OpenOptions::new()
            .append(true)
            .open(self.folder().join("container.log"))
            .context("open the container log")?;
        log.write_all(kwok::log_line(text).as_bytes()).context("write the container log")
    }

    /// Plain HTTP port on 127.0.0.1 to which kwok forwards port 8080 of every pod. The port belongs to etcd, which
    /// answers `/health`.
    #[must_use]
    pub fn forwarded_port(&self) -> u16 {
        self.ports.etcd
    }

    /// Returns the last lines of the log of one of the member's programs.
    #[must_use]
    pub fn log_tail(&self, program: &str) -> String {
        process::tail(&self.folder().join(format!("{program}.log")), 25)
    }

    fn spawn(&self, program: &str, command: Command) -> anyhow::Result<Process> {
        Process::spawn(program, command, &self.folder().join(format!("{program}.log")))
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.tools.server(name));
        command.current_dir(self.folder());
        command
    }

    fn etcd(&self) -> Command {
        let client = format!("http://127.0.0.1:{}", self.ports.etcd);
        let peer = format!("http://127.0.0.1:{}", self.ports.etcd_peer);
        let mut command = self.program("etcd");
        let data = format!("--data-dir={DATA}");
        command.args(["--name=default", &data, "--unsafe-no-fsync", "--log-level=warn"]);
        command.args([
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
        ]);
        command
    }

    fn apiserver(&self, port: u16) -> Command {
        let mut command = self.program("kube-apiserver");
        command.args([format!("--etcd-servers=http://127.0.0.1:{}", self.ports.etcd), format!("--secure-port={port}")]);
        command.args([
            "--bind-address=127.0.0.1",
            "--token-auth-file=tokens.csv",
            "--client-ca-file=people.crt",
            "--tls-cert-file=serving.crt",
            "--tls-private-key-file=serving.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=service-account.pub",
            "--service-account-signing-key-file=service-account.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            // The nodes of kwok have an IP address, and their names do not resolve. Without this flag, the
            // kube-apiserver could not connect to their kubelets.
            "--kubelet-preferred-address-types=InternalIP",
        ]);
        if !self.builder.service_accounts {
            // Without the admission plugin `ServiceAccount`, pods need no service account, which this cluster does not
            // create.
            command.arg("--disable-admission-plugins=ServiceAccount");
        }
        if self.builder.front_proxy {
            command.arg(format!("--requestheader-allowed-names={FRONT_PROXY}"));
            command.args([
                "--requestheader-client-ca-file=front-proxy-ca.crt",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-uid-headers=X-Remote-Uid",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                "--proxy-client-cert-file=front-proxy.crt",
                "--proxy-client-key-file=front-proxy.key",
            ]);
        }
        command.args(&self.builder.authorization).args(&self.builder.apiserver_arguments);
        command
    }

    fn controller_manager(&self, controllers: &str) -> Command {
        let mut command = self.program("kube-controller-manager");
        command.args([
            "--kubeconfig=kubeconfig",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--root-ca-file=ca.crt",
            "--service-account-private-key-file=service-account.key",
            "--use-service-account-credentials=false",
        ]);
        command.arg(format!("--secure-port={}", self.ports.controller_manager));
        command.arg(format!("--controllers={controllers}"));
        command
    }

    fn scheduler(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder());
        command.args(["--kubeconfig=kubeconfig", "--leader-elect=false", "--bind-address=127.0.0.1"]);
        command.arg(format!("--secure-port={}", self.ports.scheduler));
        command
    }

    fn kwok(&self) -> Command {
        let mut command = self.program("kwok");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = self.folder().join(kwok::PROGRAMS);
        let programs = std::iter::once(own).chain(std::env::split_paths(&path));
        if let Ok(path) = std::env::join_paths(programs) {
            command.env("PATH", path);
        }
        command.args([
            "--kubeconfig=kubeconfig",
            "--config=kwok.yaml",
            "--manage-all-nodes",
            "--node-ip=127.0.0.1",
            "--tls-cert-file=serving.crt",
            "--tls-private-key-file=serving.key",
        ]);
        command.arg(format!("--node-port={}", self.ports.kubelet));
        // By default, kwok listens on all addresses, so other machines could reach it.
        command.arg(format!("--server-address=127.0.0.1:{}", self.ports.kubelet));
        command
    }
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("make {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry.context("read a folder")?;
        let target = to.join(entry.file_name());
        if entry.file_type().context("look at a file")?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target).with_context(|| format!("copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}
