//! Follows the hub's rules for client certificates and front proxies.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tributary_authentication::ClientCertificates;

use crate::client::HubClient;
use crate::front_proxy_trust::{CONFIG_MAP, FrontProxyTrust};

const PATH: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";

/// The interval of reads of an answering hub: 0.02 requests per second.
const INTERVAL: Duration = Duration::from_secs(60);
/// The pause after the first failed read. The pause doubles with each further failure, up to [`INTERVAL`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The least pause before a read that a refused client certificate requests. Unauthenticated clients can request such
/// reads, so the pause limits their rate.
const REQUESTED_PAUSE: Duration = Duration::from_secs(5);

/// The last accepted rules of the hub. Each request uses the current rules, so a rotated authority needs no restart. If
/// the ConfigMap is unreadable or invalid, the last rules stay in force.
#[derive(Debug, Default)]
pub struct HubTrust {
    current: ArcSwap<FrontProxyTrust>,
    last_read: Mutex<LastRead>,
    wanted: Notify,
}

#[derive(Debug, Default)]
struct LastRead {
    /// The `data` of the ConfigMap from which `current` was parsed.
    accepted: Option<Value>,
    problem: Option<String>,
}

impl HubTrust {
    /// Returns the rules in force.
    pub fn current(&self) -> Arc<FrontProxyTrust> {
        self.current.load_full()
    }

    /// Returns whether the ConfigMap has been read and accepted since the start of the process.
    pub fn is_read(&self) -> bool {
        self.last_read.lock().accepted.is_some()
    }

    /// Returns the problem of the rules for the status: the last read failed, no front proxy is trusted, or the trust
    /// is weak.
    pub fn problem(&self) -> Option<String> {
        let of_read = self.last_read.lock().problem.clone();
        of_read.or_else(|| self.current.load().front_proxy.problem().map(str::to_owned))
    }

    /// Requests a read before the next regular one, because a refused client certificate may belong to an authority
    /// that the hub has added since the last read.
    pub fn request_read(&self) {
        self.wanted.notify_one();
    }

    /// Reads the ConfigMap of the hub once. Returns whether the rules have changed. A problem is logged when it
    /// appears. Cancel: safe.
    pub async fn read(&self, hub: &HubClient) -> bool {
        match hub.get(PATH).await {
            Ok(config_map) => self.accept(&config_map),
            Err(error) => {
                self.note_problem(error.to_string());
                false
            }
        }
    }

    /// Reads the ConfigMap at once, then every minute, and after failures with growing pauses. Calls `changed` after
    /// each change of the rules. Never completes. Cancel: safe.
    pub async fn follow(&self, hub: &HubClient, mut changed: impl FnMut()) {
        let mut pause = FIRST_PAUSE;
        loop {
            if self.read(hub).await {
                changed();
            }
            let is_failed = self.last_read.lock().problem.is_some();
            // Before the first accepted read, no request is authenticated, so the pauses stay short.
            let pause_max = if self.is_read() { INTERVAL } else { REQUESTED_PAUSE };
            let now = if is_failed { pause.min(pause_max) } else { INTERVAL };
            pause = if is_failed { (pause * 2).min(INTERVAL) } else { FIRST_PAUSE };
            let least = now.min(REQUESTED_PAUSE);
            sleep(least).await;
            let _is_requested = timeout(now - least, self.wanted.notified()).await;
        }
    }

    fn accept(&self, config_map: &Value) -> bool {
        let data = &config_map["data"];
        let trust = match FrontProxyTrust::parse(config_map) {
            Ok(trust) => trust,
            Err(error) => {
                self.note_problem(error.to_string());
                return false;
            }
        };
        let mut last_read = self.last_read.lock();
        if last_read.problem.take().is_some() {
            tracing::info!("the ConfigMap {CONFIG_MAP} of the hub can be used again");
        }
        if last_read.accepted.as_ref() == Some(data) {
            return false;
        }
        last_read.accepted = Some(data.clone());
        report(&trust);
        self.current.store(Arc::new(trust));
        true
    }

    fn note_problem(&self, problem: String) {
        let mut last_read = self.last_read.lock();
        if last_read.problem.as_ref() != Some(&problem) {
            let outcome = match last_read.accepted {
                Some(_) => "the last rules for certificates and front proxies stay in force",
                None => "no certificate and no front proxy of the hub is trusted",
            };
            tracing::warn!(problem, outcome, "the ConfigMap {CONFIG_MAP} of the hub cannot be used");
        }
        last_read.problem = Some(problem);
    }
}

fn report(trust: &FrontProxyTrust) {
    let proxies = trust.front_proxy.rules().map(|rules| &rules.authorities);
    let count = |authorities: Option<&ClientCertificates>| authorities.map_or(0, |own| own.subjects().len());
    let (clients, proxies) = (count(trust.clients.as_ref()), count(proxies));
    tracing::info!(clients, proxies, "the certificate authorities of the hub are in force");
    if let Some(problem) = trust.front_proxy.problem() {
        tracing::warn!(problem, "the front proxy of the hub is not trusted, or its trust is weak");
    }
}
