//! Follows the number of replicas by the addresses of the replicas' DNS name. Flow-control limits are divided by this
//! number.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tributary_router::Router;

/// The interval of DNS lookups. Cluster DNS allows caching for 5 s.
const INTERVAL: Duration = Duration::from_secs(5);

/// The time limit of a DNS lookup, longer than a resolver waits for its first server.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Looks up the addresses of a DNS name repeatedly, and divides the flow-control limits by the number of addresses.
/// Never completes. While the name has no address or cannot be resolved, the last known number stays. Cancel: safe.
pub(crate) async fn follow_number(host: String, first: NonZeroU32, router: Arc<Router>) {
    let (mut known, mut is_resolved) = (first, true);
    let mut tick = interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match resolve(&host).await {
            Ok(replicas) => {
                is_resolved = true;
                if replicas != known {
                    tracing::info!(%host, %replicas, before = %known,
                        "the number of replicas has changed; limits of flow control are divided by the new number");
                    router.set_replicas(replicas);
                    known = replicas;
                }
            }
            Err(reason) if is_resolved => {
                is_resolved = false;
                tracing::warn!(%host, reason, replicas = %known, "the DNS name of the replicas cannot be resolved; limits of flow control stay divided by the last known number of replicas");
            }
            Err(_) => {}
        }
    }
}

async fn resolve(host: &str) -> Result<NonZeroU32, String> {
    match timeout(LOOKUP_TIMEOUT, lookup_host((host, 0))).await {
        Ok(Ok(addresses)) => {
            count_replicas(addresses.map(|address| address.ip())).ok_or_else(|| "the name has no address".to_owned())
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", LOOKUP_TIMEOUT.as_secs())),
    }
}

/// Returns the number of replicas with these addresses. A replica may have an IPv4 and an IPv6 address. Returns `None`
/// without addresses.
fn count_replicas(addresses: impl IntoIterator<Item = IpAddr>) -> Option<NonZeroU32> {
    let (v4, v6): (BTreeSet<_>, BTreeSet<_>) = addresses.into_iter().partition(IpAddr::is_ipv4);
    NonZeroU32::new(u32::try_from(v4.len().max(v6.len())).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_with_two_address_families_counts_once() {
        for (addresses, expected) in [
            (&["10.0.0.1"][..], Some(1)),
            (&["10.0.0.1", "10.0.0.2", "10.0.0.1"], Some(2)),
            (&["10.0.0.1", "fd00::1", "fd00::2", "10.0.0.2"], Some(2)),
            (&["fd00::1", "fd00::2"], Some(2)),
            (&[], None),
        ] {
            let addresses = addresses.iter().map(|address| address.parse().unwrap());
            assert_eq!(count_replicas(addresses).map(NonZeroU32::get), expected);
        }
    }

    #[tokio::test]
    async fn dns_name_of_replicas_is_resolved() {
        assert_eq!(resolve("localhost").await, Ok(NonZeroU32::MIN));
        assert!(resolve("replicas.invalid").await.is_err());
    }
}
