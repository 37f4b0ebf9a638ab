//! Asks the other replicas for what is wanted of limits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, future::BoxFuture};
use http::{Request, StatusCode};
use rustls::ServerConfig;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tributary_apimachinery::{explain, or_never};
use tributary_flow_control::{LOAN, ReplicaId};
use tributary_router::{LimitShare, Router};

use super::credentials::{CredentialFiles, ReplicaCredentials};
use super::message::{Message, PATH};
use super::metrics::ReplicaMetrics;
use super::places::{self, Place, Places};
use crate::config_source::watch::FileWatch;

/// How often the others are asked: a loan is renewed some times before it is over.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long an answer may take. The later it is the less of a loan is left.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// What asks. One per process.
pub(super) struct Asking {
    own: ReplicaId,
    /// How many replicas there are to be.
    count: NonZeroU32,
    router: Arc<Router>,
    places: Places,
    others: BTreeMap<Place, Other>,
    files: CredentialFiles,
    credentials: ReplicaCredentials,
    /// How this replica's listener takes connections; exchanged with the files.
    server: Arc<ArcSwap<ServerConfig>>,
    metrics: ReplicaMetrics,
    /// Whether more were reached last than there are to be.
    are_too_many: bool,
}

/// One that is asked.
struct Other {
    client: kube::Client,
    /// As it said last.
    id: Option<ReplicaId>,
    /// Whether it answered last; `None` before it was asked.
    is_reached: Option<bool>,
    is_being_asked: bool,
}

/// What one answered.
struct Answered {
    place: Place,
    asked: Instant,
    answer: Result<Message, String>,
}

impl Asking {
    /// Asks nobody yet. `own` is this replica, and how many there are to be.
    ///
    /// # Errors
    /// Credentials of which no client can be made.
    pub(super) fn new(
        own: (ReplicaId, NonZeroU32),
        places: Places,
        (files, credentials, server): (CredentialFiles, ReplicaCredentials, Arc<ArcSwap<ServerConfig>>),
        router: Arc<Router>,
    ) -> anyhow::Result<Self> {
        // Whether one can be made does not depend on the address.
        client("localhost", (Ipv4Addr::LOCALHOST, 1).into(), &credentials)?;
        let metrics = ReplicaMetrics::default();
        router.metrics().register(|registry| metrics.register(registry));
        let ((own, count), others) = (own, BTreeMap::new());
        Ok(Self { own, count, router, places, others, files, credentials, server, metrics, are_too_many: false })
    }

    /// Asks each second, for ever. Cancel: safe; loans that stand are no longer followed then.
    pub(super) async fn run(mut self) {
        let [mut tick, mut resolve] = [INTERVAL, places::INTERVAL].map(|period| {
            let mut tick = interval(period);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            tick
        });
        let mut watch = FileWatch::new();
        watch.set(self.files.paths());
        let (mut asking, mut resolving) = (FuturesUnordered::new(), FuturesUnordered::new());
        loop {
            // What is borrowed is over when it is, whoever is being asked then.
            let end = self.router.flow_shares().settle();
            tokio::select! {
                () = or_never(end.map(sleep_until)) => {}
                _ = resolve.tick() => resolving.extend(self.places.resolve()),
                Some(resolved) = resolving.next() => {
                    self.places.take(resolved);
                    self.follow_places();
                }
                _ = tick.tick() => asking.extend(self.ask()),
                Some(answered) = asking.next() => self.take(answered),
                () = watch.changed() => {
                    self.reload();
                    // Links may lead elsewhere now.
                    watch.set(self.files.paths());
                }
            }
        }
    }

    /// Asks those that there are now, and no others. What one lent that is there no longer is over when it would be.
    fn follow_places(&mut self) {
        let places = self.places.all();
        self.others.retain(|place, _| places.contains(place));
        for place in places {
            if self.others.contains_key(&place) {
                continue;
            }
            match client(self.places.url(place).host(), place.address, &self.credentials) {
                Ok(client) => {
                    let other = Other { client, id: None, is_reached: None, is_being_asked: false };
                    self.others.insert(place, other);
                }
                Err(error) => {
                    let (replica, reason) = (place.address, format!("{error:#}"));
                    tracing::error!(%replica, reason, "another replica cannot be asked");
                }
            }
        }
        self.count_reached();
    }

    /// A question to each that has answered the one before.
    fn ask(&mut self) -> Vec<BoxFuture<'static, Answered>> {
        let limits = self.router.flow_shares();
        let wanted = limits.wanted();
        let free = self.others.iter_mut().filter(|(_, other)| !other.is_being_asked);
        let questions = free.map(|(place, other)| {
            other.is_being_asked = true;
            let question = Message::new(self.own, &limits.asked_of(other.id, &wanted));
            let (place, client, asked) = (*place, other.client.clone(), Instant::now());
            async move {
                let answer = match timeout(ANSWER_WITHIN, post(client, question)).await {
                    Ok(answer) => answer,
                    Err(_) => Err(format!("it did not answer within {} s", ANSWER_WITHIN.as_secs())),
                };
                Answered { place, asked, answer }
            }
            .boxed()
        });
        questions.collect()
    }

    fn take(&mut self, Answered { place, asked, answer }: Answered) {
        let Some(other) = self.others.get_mut(&place) else { return };
        let (url, address) = (self.places.url(place), place.address);
        other.is_being_asked = false;
        match answer {
            Ok(answer) => {
                other.id = Some(answer.replica());
                let lent: Vec<LimitShare> = answer.shares();
                if answer.replica() != self.own {
                    self.router.flow_shares().borrow(answer.replica(), &lent, asked);
                }
                if other.is_reached.replace(true) != Some(true) {
                    tracing::info!(replica = %url, %address, "the other replica is reached; it lends what it does not use of limits");
                }
            }
            Err(reason) => {
                if other.is_reached.replace(false) != Some(false) {
                    let seconds = LOAN.as_secs();
                    tracing::warn!(replica = %url, %address, reason, "another replica is out of reach; what it lent is over within {seconds} s, and this one has its own part of each limit");
                }
            }
        }
        self.count_reached();
    }

    /// How many others answer. Where those are more than are counted, each has a smaller part of every limit.
    fn count_reached(&mut self) {
        let reached = self.others.values().filter(|other| other.is_reached == Some(true)).filter_map(|other| other.id);
        let reached = reached.filter(|id| *id != self.own).collect::<BTreeSet<_>>().len();
        self.metrics.reached.set(i64::try_from(reached).unwrap_or(i64::MAX));
        let replicas = u32::try_from(reached).unwrap_or(u32::MAX).saturating_add(1);
        self.router.flow_shares().answering(replicas);
        let (count, are_too_many) = (self.count.get(), replicas > self.count.get());
        match (self.are_too_many, are_too_many) {
            (false, true) => tracing::warn!(
                replicas,
                count,
                "there are more replicas than --replica-count says, as while one takes the place of another; each has a smaller part of every limit"
            ),
            (true, false) => {
                tracing::info!(replicas, count, "there are no more replicas than --replica-count says");
            }
            _ => {}
        }
        self.are_too_many = are_too_many;
    }

    /// Reads the credentials anew; connections that are open keep theirs.
    fn reload(&mut self) {
        if let Err(error) = self.read_anew() {
            let reason = format!("{error:#}");
            tracing::error!(reason, "the new credentials for other replicas are refused; the old ones stay");
        }
    }

    fn read_anew(&mut self) -> anyhow::Result<()> {
        let credentials = ReplicaCredentials::read(&self.files)?;
        let of = |place: &Place| client(self.places.url(*place).host(), place.address, &credentials);
        let clients: Vec<_> = self.others.keys().map(of).collect::<Result<_, _>>()?;
        for (other, client) in self.others.values_mut().zip(clients) {
            other.client = client;
        }
        self.server.store(credentials.server());
        self.credentials = credentials;
        tracing::info!("the credentials for other replicas were read anew");
        Ok(())
    }
}

/// A client for the replica at this address, whose certificate is to be for this host.
fn client(host: &str, address: SocketAddr, credentials: &ReplicaCredentials) -> anyhow::Result<kube::Client> {
    let mut config = kube::Config::new(format!("https://{address}").parse()?);
    config.tls_server_name = Some(host.to_owned());
    credentials.put_into(&mut config);
    config.connect_timeout = Some(ANSWER_WITHIN);
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

async fn post(client: kube::Client, question: Message) -> Result<Message, String> {
    let request = Request::post(PATH)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(kube::client::Body::from(question.text()?))
        .map_err(|error| error.to_string())?;
    let answer = client.send(request).await.map_err(|error| explain(&error))?;
    match answer.status() {
        StatusCode::OK => Message::read(answer.into_body()).await,
        status => Err(format!("it answered {status}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use parking_lot::Mutex;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use tokio::net::TcpListener;
    use tributary_router::RouterConfig;

    use super::super::answering::Answering;
    use super::super::places::Resolver;
    use super::*;
    use crate::cli::ReplicaArguments;

    /// The one name of all replicas, which is no address of any.
    const NAME: &str = "replicas.test";
    const SOON: Duration = Duration::from_secs(30);

    /// Where the name leads now.
    struct Names(Mutex<Vec<SocketAddr>>);

    impl Resolver for Names {
        fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            let known = self.0.lock().clone();
            let found = (host == NAME && known.iter().all(|address| address.port() == port)).then_some(known);
            async move { found.ok_or_else(|| io::Error::other("no such name")) }.boxed()
        }
    }

    /// The files of replicas, all of which have one certificate for their one name.
    fn written(folder: &Path, port: u16) -> ReplicaArguments {
        let mut authority = CertificateParams::new(Vec::<String>::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
        let (issuer, key) = (Issuer::new(authority, authority_key), KeyPair::generate().unwrap());
        let own = CertificateParams::new(vec![NAME.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let file = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        ReplicaArguments {
            replica_count: NonZeroU32::new(2),
            peers: vec![format!("https://{NAME}:{port}").parse().unwrap()],
            peer_listen: None,
            peer_ca_file: file("ca.crt", authority_pem),
            peer_cert_file: file("own.crt", own.pem()),
            peer_key_file: file("own.key", key.serialize_pem()),
        }
    }

    #[tokio::test]
    async fn all_to_which_one_name_leads_are_asked_as_they_come_and_go() {
        // Replicas at addresses of their own, and at one port, as pods are.
        let first = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = first.local_addr().unwrap().port();
        let mut sockets = vec![first];
        for host in ["127.0.0.2", "127.0.0.3"] {
            sockets.push(TcpListener::bind((host, port)).await.unwrap());
        }
        let addresses: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        let folder = tempfile::tempdir().unwrap();
        let arguments = written(folder.path(), port);
        let files = CredentialFiles::of(&arguments).unwrap();
        let credentials = || ReplicaCredentials::read(&files).unwrap();
        let router = Router::new(RouterConfig::default());
        for (socket, id) in sockets.into_iter().zip([1, 2, 3]) {
            let server = Arc::new(ArcSwap::new(credentials().server()));
            let of = if id == 1 { Arc::clone(&router) } else { Router::new(RouterConfig::default()) };
            tokio::spawn(Answering::new(ReplicaId(id), server, of).run(socket));
        }
        let names = Arc::new(Names(Mutex::new(addresses.clone())));
        let places = Places::new(&arguments.peers, names.clone());
        let own = (ReplicaId(1), arguments.count());
        let server = Arc::new(ArcSwap::new(credentials().server()));
        let asking = Asking::new(own, places, (files.clone(), credentials(), server), Arc::clone(&router)).unwrap();
        let reached = asking.metrics.reached.clone();
        let asking = tokio::spawn(asking.run());
        // Of the three it is one itself.
        // Two are counted: the third is the surplus of a rolling update.
        for (now, expected, sharing) in [(&addresses[..], 2, 3), (&addresses[..2], 1, 2), (&addresses[..], 2, 3)] {
            *names.0.lock() = now.to_vec();
            let comes = async {
                while reached.get() != expected {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            timeout(SOON, comes).await.unwrap_or_else(|_| panic!("{} of {expected} are reached", reached.get()));
            assert_eq!(router.flow_shares().count().get(), sharing);
        }
        asking.abort();
    }
}
