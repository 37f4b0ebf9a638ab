//! The flags for the division of flow-control limits among replicas.

use std::num::NonZeroU32;

use anyhow::ensure;
use clap::Args;

/// The number of replicas that share each limit of flow control.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Replicas that share the limits of flow control")]
pub struct ReplicaArguments {
    /// Number of replicas. Each replica gets an equal part of each flow-control limit [default: 1]
    #[arg(long, value_name = "N")]
    pub replica_count: Option<NonZeroU32>,
    /// A DNS name with an address for each replica, such as the name of a headless Service. Flow-control limits are
    /// divided by the number of addresses, which is looked up every 5 seconds. Until the first answer, --replica-count
    /// is used
    #[arg(long, value_name = "HOST", requires = "replica_count")]
    pub replica_dns_name: Option<String>,
    /// A flag of older releases, in which replicas lent limits to each other. Without `--replica-count`, each value
    /// counts as a replica.
    #[arg(long = "peer", value_name = "URL", hide = true)]
    pub peers: Vec<String>,
    /// A flag of older releases, without effect.
    #[arg(long, value_name = "IP:PORT", hide = true)]
    pub peer_listen: Option<String>,
    /// A flag of older releases, without effect.
    #[arg(long, value_name = "FILE", hide = true)]
    pub peer_ca_file: Option<String>,
    /// A flag of older releases, without effect.
    #[arg(long, value_name = "FILE", hide = true)]
    pub peer_cert_file: Option<String>,
    /// A flag of older releases, without effect.
    #[arg(long, value_name = "FILE", hide = true)]
    pub peer_key_file: Option<String>,
}

impl ReplicaArguments {
    /// Returns whether the flags configure several replicas.
    pub fn has_several(&self) -> bool {
        self.count() > NonZeroU32::MIN || self.replica_dns_name.is_some()
    }

    /// Checks that the flags for several replicas do not contradict `--replicas One`. Logs a warning about flags of
    /// older releases that have no effect.
    ///
    /// # Errors
    /// Two contradicting flags.
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
            !is_one || !self.has_several(),
            "--replicas One contradicts --replica-count and --replica-dns-name, which mean several replicas; remove one \
             of the two"
        );
        Ok(())
    }

    /// Returns the number of replicas, including this process, from the flags.
    pub(crate) fn count(&self) -> NonZeroU32 {
        let peers = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        self.replica_count.unwrap_or_else(|| NonZeroU32::MIN.saturating_add(peers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_count_is_the_flag_or_the_number_of_peers_plus_one() {
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
        assert!(named.check(true).is_err(), "the number of addresses can change");
    }
}
