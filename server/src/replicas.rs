//! Replicas that lend each other what they do not use of flow control's limits.
//!
//! Each listens for the others' questions and asks each of them once in a second, wherever their names lead, over TLS
//! in which both sides have a certificate of the replicas' own authority. What is lent and borrowed is the router's;
//! nothing here has to be agreed on by all, and a replica that is cut off has its equal part of each limit.
//!
//! ```text
//! asking ──▶ message ──▶ answering        of another process
//!    └──────▶ FlowShares ◀──────┘       of the router
//! ```

mod answering;
mod asking;
mod credentials;
mod message;
mod metrics;
mod places;

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tributary_flow_control::ReplicaId;
use tributary_router::Router;

use crate::cli::ReplicaArguments;
use crate::exit::Failure;
use crate::listener::{self, BindError};
use answering::Answering;
use asking::Asking;
use credentials::{CredentialFiles, ReplicaCredentials};
pub use metrics::ReplicaMetrics;
use places::{Places, SystemResolver};

/// What is needed to talk with the other replicas.
pub(crate) struct Exchange {
    socket: TcpListener,
    answering: Answering,
    asking: Asking,
}

impl Exchange {
    /// Reads the credentials and listens; `None` where no flag asks for it. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// A usage failure that names the flag and the file; a failure of the environment for an address that cannot be
    /// listened on.
    pub(crate) fn open(arguments: &ReplicaArguments, router: &Arc<Router>) -> Result<Option<Self>, Failure> {
        let Some((address, files)) = arguments.peer_listen.zip(CredentialFiles::of(arguments)) else { return Ok(None) };
        let credentials = ReplicaCredentials::read(&files).map_err(Failure::usage)?;
        let socket = listener::bind(address).map_err(|error| match error {
            BindError::InUse(address) => Failure::runtime(anyhow::anyhow!(
                "--peer-listen {address} is in use by another process; choose another port"
            )),
            error => Failure::runtime(anyhow::Error::new(error).context("--peer-listen")),
        })?;
        let own = ReplicaId(rand::random());
        let server = Arc::new(ArcSwap::new(credentials.server()));
        let answering = Answering::new(own, Arc::clone(&server), Arc::clone(router));
        let places = Places::new(&arguments.peers, Arc::new(SystemResolver));
        let asking = Asking::new((own, arguments.count()), places, (files, credentials, server), Arc::clone(router));
        let asking = asking.map_err(Failure::usage)?;
        Ok(Some(Self { socket, answering, asking }))
    }

    /// Asks and answers until cancelled. What is borrowed then is no longer followed.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { socket, answering, asking } = self;
        tokio::spawn(stop.clone().run_until_cancelled_owned(answering.run(socket)));
        stop.run_until_cancelled(asking.run()).await;
    }
}
