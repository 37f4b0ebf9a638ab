//! Where the other replicas are: what each `--peer` names leads to one address or to several, as the name of a headless
//! Service does, and to others as replicas come and go.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::timeout;

use crate::cli::PeerUrl;

/// How often names are resolved. 5 s: as long as cluster DNS lets its answers be kept, and as a loan lasts.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// How long that may take. Longer than a resolver waits for the first of its servers.
const RESOLVED_WITHIN: Duration = Duration::from_secs(10);
/// How many addresses of one name are asked: as many replicas as one answers at once.
const ADDRESSES_MAX: usize = 64;

/// Resolves names.
pub(super) trait Resolver: Send + Sync {
    /// The addresses of a host, at this port.
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// Resolves names as all of this machine's programs do.
pub(super) struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) }.boxed()
    }
}

/// One address of what a `--peer` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Which `--peer`.
    pub(super) peer: usize,
    pub(super) address: SocketAddr,
}

/// What a name was found to lead to.
pub(super) struct Resolved {
    peer: usize,
    addresses: io::Result<Vec<SocketAddr>>,
}

/// What each `--peer` leads to, as it was found last.
pub(super) struct Places {
    resolver: Arc<dyn Resolver>,
    peers: Vec<Peer>,
}

struct Peer {
    url: PeerUrl,
    addresses: BTreeSet<SocketAddr>,
    is_being_resolved: bool,
    /// Whether it could be resolved last; `None` before it was tried.
    is_resolved: Option<bool>,
}

impl Places {
    /// Of these; none is resolved yet.
    pub(super) fn new(urls: &[PeerUrl], resolver: Arc<dyn Resolver>) -> Self {
        let peer = |url: &PeerUrl| Peer {
            url: url.clone(),
            addresses: BTreeSet::new(),
            is_being_resolved: false,
            is_resolved: None,
        };
        Self { resolver, peers: urls.iter().map(peer).collect() }
    }

    /// All of them.
    pub(super) fn all(&self) -> BTreeSet<Place> {
        let of = |(peer, known): (usize, &Peer)| {
            known.addresses.iter().map(move |address| Place { peer, address: *address }).collect::<Vec<_>>()
        };
        self.peers.iter().enumerate().flat_map(of).collect()
    }

    /// What names the replica at a place.
    pub(super) fn url(&self, place: Place) -> &PeerUrl {
        &self.peers[place.peer].url
    }

    /// Resolves each that is not being resolved.
    pub(super) fn resolve(&mut self) -> Vec<BoxFuture<'static, Resolved>> {
        let idle = self.peers.iter_mut().enumerate().filter(|(_, known)| !known.is_being_resolved);
        let resolving = idle.map(|(peer, known)| {
            known.is_being_resolved = true;
            let found = self.resolver.resolve(known.url.host().to_owned(), known.url.port());
            async move {
                let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time"));
                Resolved { peer, addresses: timeout(RESOLVED_WITHIN, found).await.unwrap_or_else(late) }
            }
            .boxed()
        });
        resolving.collect()
    }

    /// Takes over what a name leads to. Where that is not known what it led to before stays: whoever resolves names may
    /// be out of reach while the replicas are not.
    pub(super) fn take(&mut self, Resolved { peer, addresses }: Resolved) {
        let known = &mut self.peers[peer];
        known.is_being_resolved = false;
        let was_resolved = known.is_resolved.replace(addresses.is_ok());
        match addresses {
            Ok(addresses) => {
                let addresses = addresses_asked(addresses);
                if known.addresses != addresses {
                    let (peer, count) = (&known.url, addresses.len());
                    tracing::info!(%peer, addresses = count, "what is named as other replicas leads to other addresses");
                }
                known.addresses = addresses;
            }
            Err(reason) if was_resolved != Some(false) => {
                let (peer, count) = (&known.url, known.addresses.len());
                tracing::warn!(%peer, %reason, addresses = count, "what is named as other replicas cannot be resolved; those known before are asked");
            }
            Err(_) => {}
        }
    }
}

/// Those of the addresses that are asked: the least, as an answer may have them in another order each time.
fn addresses_asked(addresses: Vec<SocketAddr>) -> BTreeSet<SocketAddr> {
    let all: BTreeSet<_> = addresses.into_iter().collect();
    all.into_iter().take(ADDRESSES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// What a name leads to now; `None` where it cannot be resolved.
    struct Told(Mutex<Option<Vec<SocketAddr>>>);

    impl Resolver for Told {
        fn resolve(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            let told = self.0.lock().clone().ok_or_else(|| io::Error::other("no such name"));
            async move { told }.boxed()
        }
    }

    fn addresses(hosts: impl IntoIterator<Item = u8>) -> Vec<SocketAddr> {
        hosts.into_iter().map(|host| SocketAddr::from(([10, 0, 0, host], 7444))).collect()
    }

    #[test]
    fn of_too_many_addresses_the_same_are_asked_in_whatever_order_they_come() {
        let mut all = addresses(1..=100);
        let mut first = None;
        for _ in 0..3 {
            let found = addresses_asked(all.clone());
            assert_eq!(found.len(), ADDRESSES_MAX);
            assert_eq!(first.get_or_insert_with(|| found.clone()), &found);
            all.rotate_left(37);
        }
    }

    #[tokio::test]
    async fn replicas_come_and_go_with_the_addresses_of_a_name_and_stay_where_nobody_knows_them() {
        let told = Arc::new(Told(Mutex::new(None)));
        let mut places = Places::new(&["https://replicas:7444".parse().unwrap()], told.clone());
        for (now, expected) in [
            (None, addresses([])),
            (Some(addresses([1, 2, 3])), addresses([1, 2, 3])),
            (Some(addresses([3, 1, 3])), addresses([1, 3])),
            (None, addresses([1, 3])),
            (Some(addresses([4])), addresses([4])),
            (Some(addresses([])), addresses([])),
            (Some(addresses(0..=255)), addresses(0..64)),
        ] {
            *told.0.lock() = now;
            let mut resolving = places.resolve();
            assert_eq!(resolving.len(), 1);
            assert!(places.resolve().is_empty(), "it is being resolved");
            places.take(resolving.pop().unwrap().await);
            let all: Vec<_> = places.all().into_iter().map(|place| place.address).collect();
            assert_eq!(all, expected);
        }
    }

    #[tokio::test]
    async fn an_address_leads_to_itself() {
        for (text, expected) in [("https://127.0.0.1:1", "127.0.0.1:1"), ("https://[::1]:2", "[::1]:2")] {
            let mut places = Places::new(&[text.parse().unwrap()], Arc::new(SystemResolver));
            for resolving in places.resolve() {
                places.take(resolving.await);
            }
            let all: Vec<_> = places.all().into_iter().map(|place| place.address.to_string()).collect();
            assert_eq!(all, [expected]);
        }
    }
}
