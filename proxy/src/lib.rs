//! Sends requests to a cluster: connections, credentials, upgrades and streaming.
//!
//! A [`ClusterClient`] is the client of one cluster. The client has a pool of HTTP/2 connections to each endpoint, adds
//! the credentials of the kubeconfig user, replaces the client's identity headers by the caller's identity
//! ([`RequestIdentity`]), and streams bodies in both directions.
//!
//! Steps of a request:
//!
//! 1. [`headers::prepare_request`] removes hop-by-hop headers, then the client's credentials and identity headers.
//! 2. The caller's [`RequestIdentity`] and the cluster's credentials are set.
//! 3. The best endpoint is chosen, and the path is appended to its base path.
//! 4. An upgrade (exec, attach, port-forward, `proxy`) gets a separate connection. Other requests get a stream of the
//!    pool. The pool has separate connections for short requests, for watches, and for other long-running requests of
//!    each client.
//! 5. Redirects, unexpected 1xx responses, and a 401 to Tributary's credentials become errors. Other responses are
//!    streamed to the client.
//!
//! Invariants:
//!
//! - A request body is sent again only if the cluster has certainly not processed the request.
//! - An identity header of a client never reaches a cluster.
//! - Credentials are sent only to the cluster's addresses.
//! - A user's own token ([`RequestIdentity::UserToken`]) is sent only on connections without Tributary's credentials.
//! - A client uses no cache, and knows no cluster except its own.

mod client;
mod client_upgrade;
mod cluster_uid;
mod command_policy;
mod credentials;
mod dial_policy;
mod endpoints;
mod error;
mod exhaustion;
mod failed_upgrades;
mod failure_class;
mod forward;
mod forward_context;
pub mod headers;
mod health;
mod left_out;
mod member;
mod peer;
mod permit_pool;
mod pool;
mod probing;
mod request_loop;
mod retry_budget;
mod target;
mod tick;
mod tuning;
mod tunnel_end;
mod upgrade;

pub use client::{ClusterClient, Health, Transport};
pub use client_upgrade::ClientUpgrade;
pub use cluster_uid::{ClusterChanges, ClusterUid, Successor, UidMatch, is_uid};
pub use command_policy::{AllowedCommand, CommandPolicy, RefusedCommand};
pub use credentials::identity::{
    Impersonation, InvalidClientImpersonation, InvalidImpersonation, RequestIdentity, user_authorization,
};
pub use credentials::plugins::Plugins;
pub use dial_policy::{DialPolicy, RefusedAddress};
pub use endpoints::destination::EndpointSubset;
pub use endpoints::endpoint::EndpointStatus;
pub use error::{ConnectError, ForwardError, Sent};
pub use failure_class::FailureClass;
pub use forward::member_body::ResponseBodyError;
pub use forward_context::ForwardContext;
pub use health::reachability::{Reachability, ReachabilityState};
pub use health::settings::BreakerTuning;
pub use health::settings::Probe;
pub use left_out::{LeftOut, LeftOutReason};
pub use permit_pool::PermitPool;
pub use pool::PoolStatistics;
pub use pool::byte_stream::{BoxIo, Io};
pub use pool::dial::Connector;
pub use pool::received::received;
pub use pool::server_identities::ServerIdentities;
pub use pool::tls::system_roots;
pub use pool::watch_connection::WATCH_STREAM_BYTES;
pub use request_loop::{RequestLoop, check_request_loop};
pub use retry_budget::RetryStatistics;
pub use target::{Address, without_user_info};
pub use tick::nearest_tick;
pub use tuning::{ClientTuning, Windows};
pub use tunnel_end::{TunnelEnd, TunnelEnder};
