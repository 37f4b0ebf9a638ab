//! The flags of replicas that share the limits of flow control.

use std::num::NonZeroU32;

use anyhow::ensure;
use clap::Args;

/// How many replicas share each limit of flow control.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Replicas that share the limits of flow control")]
pub struct ReplicaArguments {
    /// How many replicas share each limit of flow control. Each has an equal part [default: 1]
    #[arg(long, value_name = "N")]
    pub replica_count: Option<NonZeroU32>,
    /// A DNS name with one address per replica, such as that of a headless Service. Each limit of flow control is
    /// divided by the number of its addresses, which is looked up every 5 seconds. --replica-count is the number until
    /// the name is resolved for the first time
    #[arg(long, value_name = "HOST", requires = "replica_count")]
    pub replica_dns_name: Option<String>,
    /// Replicas lent limits to each other. Each of these counts as a replica where --replica-count is absent
    #[arg(long = "peer", value_name = "URL", hide = true)]
    pub peers: Vec<String>,
    /// Accepted for older command lines, without effect
    #[arg(long, value_name = "IP:PORT", hide = true)]
    pub peer_listen: Option<String>,
    /// Accepted for older command lines, without effect
    #[arg(long, value_name = "FILE", hide = true)]
    pub peer_ca_file: Option<String>,
    /// Accepted for older command lines, without effect
    #[arg(long, value_name = "FILE", hide = true)]
    pub peer_cert_file: Option<String>,
    /// Accepted for older command lines, without effect
    #[arg(long, value_name = "FILE", hide = true)]
    pub peer_key_file: Option<String>,
}

impl ReplicaArguments {
    /// Whether there are others.
    pub fn are_several(&self) -> bool {
        self.count() > NonZeroU32::MIN || self.replica_dns_name.is_some()
    }

    /// Checks the flags against `--replicas One`, and logs a warning about flags that have no effect any more.
    ///
    /// # Errors
    /// Two flags that contradict each other.
    pub fn check(&self, is_one: bool) -> anyhow::Result<()> {
        let Self { peers, peer_listen, peer_ca_file, peer_cert_file, peer_key_file, .. } = self;
        let mut without_effect = [peer_listen, peer_ca_file, peer_cert_file, peer_key_file].into_iter().flatten();
        if !peers.is_empty() || without_effect.next().is_some() {
            let replicas = self.count();
            tracing::warn!(
                %replicas,
                "replicas no longer lend limits of flow control to each other: --peer, --peer-listen, --peer-ca-file, \
                 --peer-cert-file and --peer-key-file have no effect, except that each --peer counts as a replica \
                 where --replica-count is absent; replace them by --replica-count and --replica-dns-name"
            );
        }
        ensure!(
            !is_one || !self.are_several(),
            "--replicas One says that this process serves alone, and --replica-count or --replica-dns-name says that \
             there are several replicas; leave one of the two out"
        );
        Ok(())
    }

    /// Returns the number of replicas that the flags give, this one included.
    pub(crate) fn count(&self) -> NonZeroU32 {
        let peers = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        self.replica_count.unwrap_or_else(|| NonZeroU32::MIN.saturating_add(peers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_replicas_is_the_one_that_is_given_or_one_more_than_peers() {
        let count = |number| NonZeroU32::new(number);
        for (replica_count, peers, expected) in [(None, 0, 1), (None, 2, 3), (count(3), 3, 3), (count(6), 1, 6)] {
            let peers = vec!["https://a:1".to_owned(); peers];
            let arguments = ReplicaArguments { replica_count, peers, ..ReplicaArguments::default() };
            assert_eq!(arguments.count().get(), expected);
            assert!(arguments.check(false).is_ok());
            assert_eq!(arguments.check(true).is_ok(), expected == 1);
        }
        let name = Some("replicas".to_owned());
        let named = ReplicaArguments { replica_count: count(1), replica_dns_name: name, ..Default::default() };
        assert!(named.check(true).is_err(), "its number may become another");
    }
}
