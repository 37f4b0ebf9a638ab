//! Sends one request to one cluster: connections, credentials, upgrades and streaming.
//!
//! A [`ClusterClient`] stands for one member. It keeps a pool of HTTP/2 connections to each of the member's endpoints,
//! attaches the credentials of the kubeconfig user, replaces whatever identity the client claimed by the one that the
//! caller decided on ([`RequestIdentity`]), and streams bodies both ways without holding them.
//!
//! What a request meets, in order:
//! 1. [`headers::prepare_request`] removes hop-by-hop headers, then the client's own credentials and identity;
//! 2. the caller's [`RequestIdentity`] and the member's credentials are set;
//! 3. the member's best endpoint is chosen, and the path joined to its base path;
//! 4. an upgrade (exec, attach, port-forward, `proxy`) gets a connection of its own; everything else a stream of the
//!    pool: one lane of connections for short requests, one for watches, one for what else lasts, where each client has
//!    its own;
//! 5. redirects, 1xx answers that nobody asked for, and a 401 to the member's own credentials become errors; anything
//!    else is streamed back.
//!
//! Invariants: a request body is sent again only where the member has certainly not processed the request; an identity header of a client never reaches a member; credentials
//! reach no other address than the member's; a user's own token ([`OwnToken`]) goes to no member but by connections that
//! show nothing of ours; nothing here knows a cache or a second cluster.

mod breaker;
mod certificate;
mod checks;
mod client;
mod connection_task;
mod connections;
mod credentials;
mod destination;
mod dial;
mod endpoint;
mod endpoint_maker;
mod endpoints;
mod error;
mod exchange;
mod exec_plugin;
mod failures;
mod forward;
mod given_up;
pub mod headers;
mod http1;
mod identity;
mod kept_body;
mod last_question;
mod left_out;
mod line;
mod member;
mod member_body;
mod outlier;
mod own_question;
mod pass_through;
mod peer;
mod places;
mod plugins;
mod pool;
mod probe;
mod proofs;
mod reachability;
mod read_ahead;
mod read_through;
mod readers;
mod received;
mod retry_budget;
mod sips;
mod slowness;
mod speaker;
mod stream_counts;
mod suspicion;
mod target;
mod tick;
mod tls;
mod tuning;
mod tunnel;
mod tunnel_end;
mod unauthorized;
mod upgrade;
mod user;
mod watch_connection;
mod watch_stream;
mod watched;

pub use breaker::BreakerTuning;
pub use client::{ClusterClient, Health, Transport};
pub use destination::EndpointSubset;
pub use dial::Connector;
pub use endpoint::EndpointStatus;
pub use error::{ConnectError, ForwardError, Sent};
pub use identity::{
    GivenIdentity, GivenPart, Impersonation, InvalidGivenIdentity, InvalidImpersonation, OwnToken, RequestIdentity,
};
pub use left_out::{LeftOut, LeftOutReason};
pub use line::{BoxIo, Io};
pub use member_body::ResponseBodyError;
pub use peer::Peer;
pub use places::Places;
pub use plugins::Plugins;
pub use pool::PoolStatistics;
pub use probe::Probe;
pub use proofs::ServerProofs;
pub use reachability::{Reachability, ReachabilityState};
pub use received::received;
pub use retry_budget::RetryStatistics;
pub use target::{Address, without_user_info};
pub use tick::nearest_tick;
pub use tls::system_roots;
pub use tuning::{ClientTuning, Windows};
pub use tunnel_end::{TunnelEnd, TunnelEnder};
