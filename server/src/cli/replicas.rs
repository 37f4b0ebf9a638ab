//! The flags of replicas that share the limits of flow control.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::ensure;
use clap::Args;
use http::Uri;
use tributary_apimachinery::without_brackets;
use tributary_flow_control::Replicas;

/// How many replicas share each limit of flow control, and where the others are.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Replicas that share the limits of flow control")]
pub struct ReplicaArguments {
    /// How many replicas share each limit of flow control. Each has an equal part, and what others lend it [default:
    /// one more than --peer names]
    #[arg(long, value_name = "N")]
    pub replica_count: Option<NonZeroU32>,
    /// Another replica, at the address of its --peer-listen: https://HOST:PORT. Replicas lend each other what they do
    /// not use of a limit. May be repeated. A host name may lead to several replicas, as a headless Service's does; it
    /// is resolved every 5 seconds. Then, and where this replica itself is among them, --replica-count has to say how
    /// many there are
    #[arg(long = "peer", value_name = "URL", requires = "peer_listen")]
    pub peers: Vec<PeerUrl>,
    /// Where the other replicas ask this one, over TLS with certificates on both sides
    #[arg(long, value_name = "IP:PORT", requires_all = ["peer_ca_file", "peer_cert_file", "peer_key_file"])]
    pub peer_listen: Option<SocketAddr>,
    /// Certificates of the authorities that vouch for replicas. They are to vouch for nobody else
    #[arg(long, value_name = "FILE", requires = "peer_listen")]
    pub peer_ca_file: Option<PathBuf>,
    /// This replica's certificate, followed by its intermediates, for serving others and for asking them
    #[arg(long, value_name = "FILE", requires = "peer_listen")]
    pub peer_cert_file: Option<PathBuf>,
    /// The key of --peer-cert-file
    #[arg(long, value_name = "FILE", requires = "peer_listen")]
    pub peer_key_file: Option<PathBuf>,
}

impl ReplicaArguments {
    /// How many share each limit.
    pub fn replicas(&self) -> Replicas {
        Replicas::of(self.count())
    }

    /// Whether there are others.
    pub fn are_several(&self) -> bool {
        self.count() > NonZeroU32::MIN
    }

    /// Checks that the numbers fit together. `is_one` is whether it was said that no other process serves the same
    /// clients.
    ///
    /// # Errors
    /// What does not fit, and what to do.
    pub fn check(&self, is_one: bool) -> anyhow::Result<()> {
        let (count, named) = (self.count(), self.peers.len());
        ensure!(
            usize::try_from(count.get()).unwrap_or(usize::MAX) >= named,
            "--replica-count {count} is fewer than the replicas that --peer names, {named}; count all of them, this one \
             included"
        );
        ensure!(
            !is_one || !self.are_several(),
            "--replicas One says that this process serves alone, and there are {count} replicas; leave one of the two out"
        );
        Ok(())
    }

    /// How many replicas there are, this one included.
    pub(crate) fn count(&self) -> NonZeroU32 {
        let named = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        self.replica_count.unwrap_or_else(|| NonZeroU32::MIN.saturating_add(named))
    }
}

/// Where other replicas are asked: `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerUrl(Uri);

impl PeerUrl {
    /// The host: a name, or an address without brackets. It is what the certificates there have to be for.
    pub fn host(&self) -> &str {
        without_brackets(self.0.host().unwrap_or_default())
    }

    /// The port.
    pub fn port(&self) -> u16 {
        // One without a port is none.
        self.0.port_u16().unwrap_or_default()
    }
}

impl FromStr for PeerUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("{error}; give https://HOST:PORT"))?;
        let is_plain = uri.path() == "/" && uri.query().is_none();
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        match authority.and_then(http::uri::Authority::port_u16) {
            Some(_) if is_plain && uri.scheme_str() == Some("https") => Ok(Self(uri)),
            _ => Err("must be https://HOST:PORT, the address of the other replica's --peer-listen".to_owned()),
        }
    }
}

impl fmt::Display for PeerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.0.authority().map_or("", http::uri::Authority::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_asked_is_a_peer() {
        for right in ["https://tributary-1.tributary:7444", "https://[::1]:1/"] {
            assert_eq!(right.parse::<PeerUrl>().unwrap().to_string(), right.trim_end_matches('/'));
        }
        let of = |text: &str| text.parse::<PeerUrl>().map(|peer| (peer.host().to_owned(), peer.port())).unwrap();
        assert_eq!(of("https://[::1]:1/"), ("::1".to_owned(), 1));
        assert_eq!(of("https://tributary-1.tributary:7444"), ("tributary-1.tributary".to_owned(), 7444));
        for wrong in ["http://a:1", "https://a", "https://a:1/b", "https://a:1?b", "https://b:c@a:1", "a:1", ""] {
            assert!(wrong.parse::<PeerUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn who_is_not_counted_is_one_of_those_named_and_itself() {
        let count = |text: &str| NonZeroU32::new(text.parse().unwrap());
        let peers = |number: usize| vec!["https://a:1".parse().unwrap(); number];
        for (replica_count, named, share, is_one) in
            [(None, 0, 12, true), (None, 2, 4, false), (count("3"), 3, 4, false), (count("6"), 1, 2, false)]
        {
            let arguments = ReplicaArguments { replica_count, peers: peers(named), ..ReplicaArguments::default() };
            assert_eq!(arguments.replicas().part(12), share);
            assert!(arguments.check(false).is_ok());
            assert_eq!(arguments.check(true).is_ok(), is_one);
        }
        let few = ReplicaArguments { replica_count: count("2"), peers: peers(3), ..ReplicaArguments::default() };
        assert!(few.check(false).unwrap_err().to_string().contains("fewer than the replicas that --peer names, 3"));
    }
}
