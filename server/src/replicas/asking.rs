//! Asks the other replicas for what is wanted of limits.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::stream::{FuturesUnordered, StreamExt};
use futures::{FutureExt, future::BoxFuture};
use http::{Request, StatusCode};
use rustls::ServerConfig;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tributary_apimachinery::explain;
use tributary_flow_control::{LOAN, ReplicaId};
use tributary_router::{LimitShare, Router};

use super::credentials::{CredentialFiles, ReplicaCredentials};
use super::message::{Message, PATH};
use super::metrics::ReplicaMetrics;
use crate::cli::PeerUrl;
use crate::config_source::watch::FileWatch;

/// How often the others are asked: a loan is renewed some times before it is over.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long an answer may take. The later it is the less of a loan is left.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// What asks. One per process.
pub(super) struct Asking {
    own: ReplicaId,
    router: Arc<Router>,
    others: Vec<Other>,
    files: CredentialFiles,
    /// How this replica's listener takes connections; exchanged with the files.
    server: Arc<ArcSwap<ServerConfig>>,
    metrics: ReplicaMetrics,
}

/// One that is asked.
struct Other {
    url: PeerUrl,
    client: kube::Client,
    /// As it said last.
    id: Option<ReplicaId>,
    /// Whether it answered last; `None` before it was asked.
    is_reached: Option<bool>,
    is_being_asked: bool,
}

/// What one answered.
struct Answered {
    number: usize,
    asked: Instant,
    answer: Result<Message, String>,
}

impl Asking {
    /// Asks nobody yet.
    ///
    /// # Errors
    /// A URL or credentials of which no client can be made.
    pub(super) fn new(
        own: ReplicaId,
        urls: &[PeerUrl],
        (files, credentials, server): (CredentialFiles, &ReplicaCredentials, Arc<ArcSwap<ServerConfig>>),
        router: Arc<Router>,
    ) -> anyhow::Result<Self> {
        let others = urls.iter().map(|url| {
            let client = client(url, credentials)?;
            Ok(Other { url: url.clone(), client, id: None, is_reached: None, is_being_asked: false })
        });
        let others = others.collect::<anyhow::Result<_>>()?;
        let metrics = ReplicaMetrics::default();
        router.metrics().register(|registry| metrics.register(registry));
        Ok(Self { own, router, others, files, server, metrics })
    }

    /// Asks each second, for ever. Cancel: safe; loans that stand are no longer followed then.
    pub(super) async fn run(mut self) {
        let mut tick = interval(INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watch = FileWatch::new();
        watch.set(self.files.paths());
        let mut asking = FuturesUnordered::new();
        loop {
            // What is borrowed is over when it is, whoever is being asked then.
            let end = self.router.flow_shares().settle();
            let over = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {}
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

    /// A question to each that has answered the one before.
    fn ask(&mut self) -> Vec<BoxFuture<'static, Answered>> {
        let limits = self.router.flow_shares();
        let wanted = limits.wanted();
        let free = self.others.iter_mut().enumerate().filter(|(_, other)| !other.is_being_asked);
        let questions = free.map(|(number, other)| {
            other.is_being_asked = true;
            let question = Message::new(self.own, &limits.asked_of(other.id, &wanted));
            let (client, asked) = (other.client.clone(), Instant::now());
            async move {
                let answer = match timeout(ANSWER_WITHIN, post(client, question)).await {
                    Ok(answer) => answer,
                    Err(_) => Err(format!("it did not answer within {} s", ANSWER_WITHIN.as_secs())),
                };
                Answered { number, asked, answer }
            }
            .boxed()
        });
        questions.collect()
    }

    fn take(&mut self, Answered { number, asked, answer }: Answered) {
        let Some(other) = self.others.get_mut(number) else { return };
        other.is_being_asked = false;
        match answer {
            Ok(answer) => {
                other.id = Some(answer.replica());
                let lent: Vec<LimitShare> = answer.shares();
                if answer.replica() != self.own {
                    self.router.flow_shares().borrow(answer.replica(), &lent, asked);
                }
                if other.is_reached.replace(true) != Some(true) {
                    tracing::info!(replica = %other.url, "the other replica is reached; it lends what it does not use of limits");
                }
            }
            Err(reason) => {
                if other.is_reached.replace(false) != Some(false) {
                    let seconds = LOAN.as_secs();
                    tracing::warn!(replica = %other.url, reason, "another replica is out of reach; what it lent is over within {seconds} s, and this one has its own part of each limit");
                }
            }
        }
        let reached = self.others.iter().filter(|other| other.is_reached == Some(true) && other.id != Some(self.own));
        self.metrics.reached.set(i64::try_from(reached.count()).unwrap_or(i64::MAX));
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
        let clients: Vec<_> =
            self.others.iter().map(|other| client(&other.url, &credentials)).collect::<Result<_, _>>()?;
        for (other, client) in self.others.iter_mut().zip(clients) {
            other.client = client;
        }
        self.server.store(credentials.server());
        tracing::info!("the credentials for other replicas were read anew");
        Ok(())
    }
}

fn client(url: &PeerUrl, credentials: &ReplicaCredentials) -> anyhow::Result<kube::Client> {
    let mut config = kube::Config::new(url.uri().clone());
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
