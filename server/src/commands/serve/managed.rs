//! The entry of Open Cluster Management (`--ocm-listen`), with the paths of its user-server: `/CLUSTER/…`.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tributary_listener::{Drained, ListenAddress, ListenerOptions};
use tributary_router::Router;

use super::hub_users::HubUsers;
use crate::authentication::{Authenticator, HubAuthenticator, ManagedAuthenticator, SharedAuthenticator};
use crate::exit::Failure;
use crate::front::{Entry, EntryService, Front, OpenDoors};
use crate::process::threads::Threads;

/// The entry of Open Cluster Management, whose port is open. It does not answer yet.
pub(super) struct ManagedEntry {
    socket: TcpListener,
    hub: Arc<HubAuthenticator>,
}

impl ManagedEntry {
    /// Opens the port.
    ///
    /// # Errors
    /// [`Failure`] for a port that cannot be used.
    pub(super) fn open(listen: ListenAddress, users: &HubUsers, clients: &Threads) -> Result<Self, Failure> {
        let socket = {
            let _socket_is_theirs = clients.enter();
            tributary_listener::bind(listen.socket_address()).map_err(Failure::runtime)?
        };
        Ok(Self { socket, hub: Arc::clone(&users.authenticator) })
    }

    /// Answers clients. Must be called after the first configuration is applied. The returned task ends after the
    /// drain.
    ///
    /// # Errors
    /// [`Failure`] if the port has no address.
    pub(super) fn serve(
        self,
        members: SharedAuthenticator,
        (front, doors): (Arc<Front<Arc<Router>>>, Arc<OpenDoors>),
        options: ListenerOptions,
        clients: &Threads,
    ) -> Result<JoinHandle<Drained>, Failure> {
        let Self { socket, hub } = self;
        let address = socket.local_addr().map_err(Failure::runtime)?;
        tracing::info!(url = %format_args!("https://{address}"), "the door of Open Cluster Management is served");
        let authenticator = Authenticator::Managed(ManagedAuthenticator { members, hub });
        let entry = Arc::new(Entry::open_cluster_management(authenticator, doors));
        let service = Arc::new(EntryService::new(front, entry));
        Ok(clients.spawn(tributary_listener::serve(socket, service, options)))
    }
}
