//! Starts and stops a simulated member.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::SimulatorConfig;
use crate::api::Api;
use crate::catalog::{self, CATALOG, RBAC_GROUP};
use crate::certificate;
use crate::churn;
use crate::control::{Control, Faults};
use crate::listener;
use crate::store::{HistoryEvent, MemberStore};
use crate::write::{self, WriteError};

/// Starts simulated members in this process.
#[derive(Debug)]
pub struct Simulator;

/// The reason why a member did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The name is not valid as the name of a kubeconfig context and in names of objects.
    #[error("the member's name {0:?} must be a DNS-1123 label")]
    Name(String),
    /// The certificate could not be generated.
    #[error("the member's certificate could not be generated")]
    Certificate(#[source] rcgen::Error),
    /// TLS rejected the generated certificate.
    #[error("the member's TLS could not be set up")]
    Tls(#[source] rustls::Error),
    /// The port is in use.
    #[error("port {port} of 127.0.0.1 could not be opened")]
    Listen {
        /// The requested port number on 127.0.0.1.
        port: u16,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
}

impl Simulator {
    /// Starts a member on 127.0.0.1, and returns when the member accepts connections.
    ///
    /// # Errors
    /// [`StartError`] with the failed step; no part of the member runs after an error.
    pub async fn start(config: SimulatorConfig) -> Result<SimulatedCluster, StartError> {
        if tributary_apimachinery::ClusterName::new(&config.name).is_err() {
            return Err(StartError::Name(config.name));
        }
        let certificates = certificate::generate(&config.name).map_err(StartError::Certificate)?;
        let ca_pem = certificates.ca_pem.clone();
        let tls = listener::tls(certificates, config.http2).map_err(StartError::Tls)?;
        let listen_error = |source| StartError::Listen { port: config.port, source };
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port)).await.map_err(listen_error)?;
        let address = socket.local_addr().map_err(listen_error)?;

        Ok(SimulatedCluster::start(&config, address, ca_pem, |api, tasks, stop| {
            tasks.spawn(listener::run(socket, tls, api, tasks.clone(), stop));
        }))
    }

    /// Starts a member that only this process can connect to, with [`SimulatedCluster::dial`]. The member has no port
    /// and no TLS. A test with paused time is therefore deterministic. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`StartError::Name`].
    pub fn start_in_process(config: SimulatorConfig) -> Result<SimulatedCluster, StartError> {
        if tributary_apimachinery::ClusterName::new(&config.name).is_err() {
            return Err(StartError::Name(config.name));
        }
        let (dial, dialed) = mpsc::unbounded_channel();
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut member = SimulatedCluster::start(&config, nowhere, String::new(), |api, tasks, stop| {
            tasks.spawn(listener::run_in_process(dialed, api, tasks.clone(), stop));
        });
        member.control.faults.listens.send_replace(true);
        member.dial = Some(dial);
        Ok(member)
    }
}

/// A running simulated member. Dropping the value closes the member's port and ends its streams.
pub struct SimulatedCluster {
    name: String,
    address: SocketAddr,
    ca_pem: String,
    token: String,
    control: Control,
    tasks: TaskTracker,
    stop: DropGuard,
    /// The channel for connections from this process; `None` for a member with a port.
    dial: Option<mpsc::UnboundedSender<DuplexStream>>,
}

/// The size of a buffer between this process and the member, in bytes. 64 KiB is a common size of a socket's buffers.
const IN_PROCESS_BUFFER: usize = 64 << 10;

impl SimulatedCluster {
    /// Creates the parts of a member that do not depend on the listener, and starts the listener.
    fn start(
        config: &SimulatorConfig,
        address: SocketAddr,
        ca_pem: String,
        listen: impl FnOnce(Arc<Api>, &TaskTracker, CancellationToken),
    ) -> Self {
        let token = format!("{:016x}{:016x}", rand::random::<u64>(), rand::random::<u64>());
        let control = Control { faults: Arc::new(Faults::new()), store: Arc::new(MemberStore::new(config)) };
        for resource in CATALOG.iter().filter(|resource| resource.group == RBAC_GROUP) {
            control.serve(&resource.qualified(), config.rbac);
        }
        // A member with RBAC also serves SelfSubjectReviews.
        control.serve("selfsubjectreviews.authentication.k8s.io", config.rbac);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let api = Arc::new(Api::new(config, control.clone(), token.clone(), tasks.clone(), stop.clone()));
        listen(api, &tasks, stop.clone());
        if let Some(churn) = config.churn {
            tasks.spawn(churn::run(control.store.clone(), churn, config.seed, stop.clone()));
        }
        tasks.close();
        let stop = stop.drop_guard();
        Self { name: config.name.clone(), address, ca_pem, token, control, tasks, stop, dial: None }
    }

    /// Opens a connection from this process: HTTP/2 with prior knowledge, or HTTP/1.1.
    ///
    /// # Errors
    /// `ConnectionRefused` while the member does not listen, and for a member with a port.
    pub fn dial(&self) -> std::io::Result<DuplexStream> {
        let dial = self.dial.as_ref().filter(|_| *self.control.faults.listens.borrow());
        let (ours, theirs) = tokio::io::duplex(IN_PROCESS_BUFFER);
        let connected = dial.and_then(|dial| dial.send(theirs).ok());
        connected.map(|()| ours).ok_or_else(|| std::io::ErrorKind::ConnectionRefused.into())
    }

    /// Returns all changes of a resource (`pods`, `deployments.apps`) since the start, beginning with index `from`. The
    /// result is empty without [`SimulatorConfig::keep_history`]. Restores of the whole member are included.
    pub fn history(&self, resource: &str, from: usize) -> Vec<HistoryEvent> {
        let Some(resource) = catalog::CATALOG.iter().position(|r| r.qualified() == resource) else { return Vec::new() };
        self.control.store.history(resource, from)
    }

    /// Returns the member's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the member's URL, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Returns the address on which the member listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate of the authority that signed the serving certificate, in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the member's bearer token, which differs for each start.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the controls for faults, and the counters of requests.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Creates or replaces an object, whatever its resourceVersion. `kind` and `apiVersion` select the resource. The
    /// member sets uid, creationTimestamp and resourceVersion. Returns the revision of the write.
    ///
    /// # Errors
    /// [`WriteError`] if the object has an unknown kind or no name.
    pub fn apply(&self, object: Value) -> Result<u64, WriteError> {
        write::apply(&self.control.store, object)
    }

    /// Deletes an object of a resource (`pods`, `deployments.apps`). `namespace` is empty for cluster-scoped resources.
    /// Returns the revision of the deletion, or `None` if the object does not exist.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Option<u64> {
        let resource = catalog::CATALOG.iter().position(|r| r.qualified() == resource)?;
        write::remove(&self.control.store, resource, namespace, name)
    }

    /// Deletes objects of a resource, each given by (namespace, name), in one transaction, like etcd at the end of a
    /// lease that these objects share. All deletions have one revision. A watch gets a DELETED event for each object,
    /// in key order. Returns the revision, or `None` if none of the objects exists.
    pub fn expire(&self, resource: &str, objects: &[(&str, &str)]) -> Option<u64> {
        let resource = catalog::CATALOG.iter().position(|r| r.qualified() == resource)?;
        let key = |(namespace, name): &(&str, &str)| {
            tributary_apimachinery::ObjectKey::new(namespace, name).as_str().to_owned()
        };
        self.control.store.delete_together(resource, &objects.iter().map(key).collect())
    }

    /// Returns the current state of an object.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = catalog::CATALOG.iter().position(|r| r.qualified() == resource)?;
        let key = tributary_apimachinery::ObjectKey::new(namespace, name);
        let object = self.control.store.view(resource).get(key.as_str())?;
        serde_json::from_slice(object.json()).ok()
    }

    /// Returns the current objects of a resource in key order, like a list. Costs the generation of each object.
    pub fn list(&self, resource: &str) -> Vec<Value> {
        let Some(resource) = catalog::CATALOG.iter().position(|r| r.qualified() == resource) else { return Vec::new() };
        let view = self.control.store.view(resource);
        view.range(None, None).filter_map(|object| serde_json::from_slice(object.json()).ok()).collect()
    }

    /// Closes the port, ends all streams, and waits until all tasks have ended.
    pub async fn shutdown(self) {
        drop(self.stop);
        self.tasks.wait().await;
    }
}
