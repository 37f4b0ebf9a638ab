//! Schedule of credential plugins. Only a few plugins run at a time in the process. Users with equal plugin
//! configurations share one run. The pause between runs grows with each failure, unless the cause is a lack of
//! resources on this machine.
//!
//! A plugin is an external program. `aws` takes 100 MB of memory for a second. Other plugins open a browser, or lock an
//! account after several wrong passwords. Without a schedule, the plugins of two hundred contexts would start at once,
//! and again when their tokens expire together.
//!
//! Source: client-go `plugin/pkg/client/auth/exec` also has one authenticator for equal configurations.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use http::HeaderValue;
use kube::config::ExecConfig;
use parking_lot::Mutex;
use rand::Rng;
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant};

use crate::command_policy::CommandPolicy;
use crate::credentials::certificate::PluginCertificate;
use crate::credentials::exec_plugin::{self, PluginCredential};
use crate::exhaustion::Exhaustion;

/// Maximal number of credential plugins that run at the same time. With six, 200 users have credentials after half a
/// minute if a run takes a second. The largest known plugins take 100 MB each.
const RUNNING_MAX: usize = 6;
/// The longest pause between two runs of a failing plugin. Ten minutes: a person must fix a login page or a locked
/// account, and more runs may do harm.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Time between the renewal of credentials and their expiry. If the remaining lifetime is less than five minutes, a
/// fifth of it is used instead.
const EXPIRY_MARGIN: Duration = Duration::from_secs(60);
/// Random factor on the time until the renewal, so that credentials of the same age are renewed at different times.
/// 0.8 to 1.0: a renewal is never late.
const JITTER: std::ops::RangeInclusive<f64> = 0.8..=1.0;

/// The credential plugins of a process. Clones share the plugins.
#[derive(Clone)]
pub struct Plugins {
    running: Arc<Semaphore>,
    /// Permits of plugins with a policy, which users of the hub choose. They cannot delay the plugins of kubeconfigs.
    running_with_policy: Arc<Semaphore>,
    shared: Arc<Mutex<HashMap<PluginRunKey, Weak<Plugin>>>>,
}

#[derive(Clone, Copy)]
pub(crate) struct PluginTimes {
    pub(crate) run: Duration,
    /// Minimal time between two runs of the plugin, and the first pause after a failure. Each further failure doubles
    /// the pause.
    pub(crate) pause: Duration,
}

/// The program of a plugin with all of its input. Users with equal keys share the runs of one plugin.
#[derive(PartialEq, Eq, Hash)]
struct PluginRunKey {
    api_version: Option<String>,
    command: Option<String>,
    args: Vec<String>,
    env: Vec<(Option<String>, Option<String>)>,
    drop_env: Vec<String>,
    /// Plugins with a policy have a different environment.
    has_policy: bool,
}

impl PluginRunKey {
    /// Returns the key for a configuration. `None` if the plugin gets the cluster as input, because runs for two
    /// clusters then differ.
    fn from_config(config: &ExecConfig, has_policy: bool) -> Option<Self> {
        let variable = |pair: &HashMap<String, String>| (pair.get("name").cloned(), pair.get("value").cloned());
        (!config.provide_cluster_info).then(|| Self {
            api_version: config.api_version.clone(),
            command: config.command.clone(),
            args: config.args.clone().unwrap_or_default(),
            env: config.env.iter().flatten().map(variable).collect(),
            drop_env: config.drop_env.clone().unwrap_or_default(),
            has_policy,
        })
    }
}

impl Plugins {
    /// Returns the existing plugin of an equal configuration, or a new plugin.
    pub(crate) fn plugin(
        &self,
        config: &ExecConfig,
        policy: Option<&Arc<CommandPolicy>>,
        times: PluginTimes,
    ) -> Arc<Plugin> {
        let make = || {
            Arc::new(Plugin {
                config: config.clone(),
                policy: policy.cloned(),
                timeout: times.run,
                retry_interval: times.pause,
                running: Arc::clone(if policy.is_some() { &self.running_with_policy } else { &self.running }),
                state: tokio::sync::Mutex::default(),
                trouble: Mutex::default(),
            })
        };
        let Some(key) = PluginRunKey::from_config(config, policy.is_some()) else { return make() };
        let mut shared = self.shared.lock();
        if let Some(plugin) = shared.get(&key).and_then(Weak::upgrade) {
            return plugin;
        }
        shared.retain(|_, plugin| plugin.strong_count() > 0);
        let plugin = make();
        shared.insert(key, Arc::downgrade(&plugin));
        plugin
    }
}

impl Default for Plugins {
    fn default() -> Self {
        let semaphore = || Arc::new(Semaphore::new(RUNNING_MAX));
        Self { running: semaphore(), running_with_policy: semaphore(), shared: Arc::default() }
    }
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plugins({} different ones)", self.shared.lock().len())
    }
}

/// A plugin with the credentials of its last run.
pub(crate) struct Plugin {
    config: ExecConfig,
    policy: Option<Arc<CommandPolicy>>,
    timeout: Duration,
    retry_interval: Duration,
    running: Arc<Semaphore>,
    /// Locked during a run, so that concurrent callers wait and share the result.
    state: tokio::sync::Mutex<PluginState>,
    /// A copy of the last failure, for readers that do not wait for a run.
    trouble: Mutex<Option<PluginTrouble>>,
}

#[derive(Default)]
struct PluginState {
    credentials: Option<Arc<PluginCredentials>>,
    runs: u64,
    /// Number of consecutive failures, without failures from a lack of resources on this machine.
    failures: u32,
    not_before: Option<Instant>,
}

#[derive(Clone)]
struct PluginTrouble {
    error: String,
    failures: u32,
    since: Instant,
    next: Instant,
}

impl fmt::Display for PluginTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (error, age) = (&self.error, self.since.elapsed().as_secs());
        let next = self.next.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
        match self.failures {
            0 | 1 => write!(f, "{error}; the plugin may run again in {next} s"),
            failures => {
                write!(f, "{error}; the plugin failed {failures} times in {age} s and may run again in {next} s")
            }
        }
    }
}

pub(crate) struct PluginCredentials {
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) certificate: Option<Arc<PluginCertificate>>,
    pub(crate) expires: Option<SystemTime>,
    pub(crate) renew_at: Option<Instant>,
    /// Number of the run. A caller whose credentials were rejected passes their run number, and gets credentials of a
    /// different run.
    pub(crate) run: u64,
}

impl PluginCredentials {
    fn is_valid(&self) -> bool {
        self.expires.is_none_or(|at| SystemTime::now() < at)
    }
}

impl Plugin {
    /// Returns valid credentials of another run than `seen`: of the last run, or of a new run. If no new run is allowed
    /// now, returns the credentials of the last run while they are valid.
    ///
    /// Cost: a run of the program, perhaps after a wait for other plugins of the process. Cancellation kills the
    /// plugin's process.
    ///
    /// # Errors
    /// A message with the reason why no credentials are available, without secrets.
    pub(crate) async fn credentials(&self, seen: Option<u64>) -> Result<Arc<PluginCredentials>, String> {
        let mut state = self.state.lock().await;
        let valid = state.credentials.clone().filter(|credentials| credentials.is_valid());
        if let Some(credentials) = valid.as_ref().filter(|credentials| Some(credentials.run) != seen) {
            return Ok(credentials.clone());
        }
        if state.not_before.is_some_and(|at| Instant::now() < at) {
            match (self.problem(), valid) {
                (None, Some(credentials)) => return Ok(credentials),
                (Some(problem), _) => return Err(problem),
                // The last run succeeded and its credentials have expired, so the plugin runs again.
                (None, None) => {}
            }
        }
        // The semaphore is never closed, so `acquire` does not fail.
        let permit = self.running.acquire().await;
        let ran = exec_plugin::run(&self.config, self.policy.as_deref(), self.timeout).await;
        drop(permit);
        match ran.and_then(|credential| self.unless_expired(credential)) {
            Ok(credential) => {
                self.recovered();
                let jitter = rand::rng().random_range(JITTER);
                let renew_in = credential.expires.map(|at| time_to_renewal(at, SystemTime::now()).mul_f64(jitter));
                let not_before = Instant::now() + self.retry_interval;
                let credentials = Arc::new(PluginCredentials {
                    authorization: credential.authorization,
                    certificate: credential.certificate.map(Arc::new),
                    expires: credential.expires,
                    renew_at: renew_in.map(|within| Instant::now() + within),
                    run: state.runs + 1,
                });
                *state = PluginState {
                    runs: credentials.run,
                    credentials: Some(credentials.clone()),
                    failures: 0,
                    not_before: Some(not_before),
                };
                Ok(credentials)
            }
            Err(error) => {
                // A lack of resources on this machine does not lengthen the pause, because the resource may soon be
                // free again.
                if Exhaustion::from_text(&error).is_none() {
                    state.failures = state.failures.saturating_add(1);
                }
                let jitter = rand::rng().random_range(0.9..=1.1);
                let next = Instant::now() + pause(self.retry_interval, state.failures).mul_f64(jitter);
                state.not_before = Some(next);
                Err(self.failed(error, state.failures, next))
            }
        }
    }

    /// Rejects credentials that have already expired. Without this check, a plugin on a machine with a wrong clock
    /// would run for each request.
    fn unless_expired(&self, credential: PluginCredential) -> Result<PluginCredential, String> {
        let late = credential.expires.and_then(|at| SystemTime::now().duration_since(at).ok());
        let Some(late) = late else { return Ok(credential) };
        let (plugin, late) = (self.config.command.as_deref().unwrap_or_default(), late.as_secs());
        Err(format!(
            "credential plugin {plugin} returned credentials that had expired {late} s earlier; compare the clock of \
             this machine with the clock of the issuer"
        ))
    }

    pub(crate) fn problem(&self) -> Option<String> {
        self.trouble.lock().as_ref().map(ToString::to_string)
    }

    /// Records a failure of the plugin. Only the first of consecutive failures is logged.
    fn failed(&self, error: String, failures: u32, next: Instant) -> String {
        let mut trouble = self.trouble.lock();
        if trouble.is_none() {
            tracing::warn!(error, "a credential plugin fails");
        }
        let since = trouble.as_ref().map_or_else(Instant::now, |trouble| trouble.since);
        let now = PluginTrouble { error, failures, since, next };
        let text = now.to_string();
        *trouble = Some(now);
        text
    }

    fn recovered(&self) {
        if let Some(PluginTrouble { failures, .. }) = self.trouble.lock().take() {
            let plugin = self.config.command.as_deref().unwrap_or_default();
            tracing::info!(plugin, failures, "the credential plugin returns credentials again");
        }
    }
}

/// One cluster's rejections of credentials from a plugin. Each cluster has a separate counter, because another cluster
/// may accept the credentials of the same plugin.
#[derive(Default)]
pub(crate) struct Rejections {
    count: u32,
    /// Rejected credentials cause no new run before this time.
    not_before: Option<Instant>,
}

impl Rejections {
    pub(crate) fn pauses(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }

    /// Records that the cluster rejected new credentials. If the cluster had accepted credentials for longer than the
    /// longest pause, the next pause is `first_pause` again.
    pub(crate) fn add_rejection(&mut self, first_pause: Duration) {
        let is_old = self.not_before.is_none_or(|at| at.elapsed() > PAUSE_MAX);
        self.count = if is_old { 1 } else { self.count.saturating_add(1) };
        self.not_before = Some(Instant::now() + pause(first_pause, self.count));
    }
}

/// Returns the pause after this number of consecutive failures. The pause doubles with each failure, up to ten minutes.
fn pause(first: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.saturating_sub(1).min(20)).min(PAUSE_MAX.max(first))
}

/// Returns the time after which credentials with this expiry must be renewed.
fn time_to_renewal(expires: SystemTime, now: SystemTime) -> Duration {
    let remaining = expires.duration_since(now).unwrap_or_default();
    remaining.saturating_sub(EXPIRY_MARGIN.min(remaining / 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_plugin_credentials_are_renewed_before_their_expiry() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (remaining, renewal) in [(3600, 3540), (300, 240), (100, 80), (5, 4), (0, 0)] {
            assert_eq!(time_to_renewal(now + Duration::from_secs(remaining), now).as_secs(), renewal, "{remaining}");
        }
        assert_eq!(time_to_renewal(now - Duration::from_secs(9), now), Duration::ZERO);
    }

    #[test]
    fn pause_after_failures_of_an_exec_plugin_doubles_up_to_ten_minutes() {
        let first = Duration::from_secs(5);
        let pauses: Vec<u64> = (0..=10).map(|failures| pause(first, failures).as_secs()).collect();
        assert_eq!(pauses, [5, 5, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
        assert_eq!(pause(first, u32::MAX), PAUSE_MAX);
        assert_eq!(pause(Duration::from_secs(3600), 1), Duration::from_secs(3600), "a longer one that is wished for");
    }

    #[tokio::test]
    async fn pause_of_an_exec_plugin_does_not_grow_when_file_descriptors_are_exhausted() {
        const RUNS: u32 = 4;
        let plugins = Plugins::default();
        // A pause of zero lets the plugin run again at once.
        let times = PluginTimes { run: Duration::from_secs(60), pause: Duration::ZERO };
        let short = std::io::Error::from_raw_os_error(libc::EMFILE).to_string();
        for (stderr, failures) in [(&*short, 0), ("sign in", RUNS)] {
            let fails = serde_json::json!({"command": "sh", "args": ["-c", "echo \"$0\" >&2; exit 1", stderr]});
            let plugin = plugins.plugin(&serde_json::from_value(fails).unwrap(), None, times);
            for _ in 0..RUNS {
                let error = plugin.credentials(None).await.err().unwrap();
                assert!(error.contains(stderr), "{error}");
            }
            let (problem, state) = (plugin.problem().unwrap(), plugin.state.lock().await);
            assert_eq!(state.failures, failures, "{problem}");
            assert_eq!(problem.contains("the plugin failed"), failures > 1, "{problem}");
        }
    }

    #[test]
    fn members_with_equal_exec_plugin_configurations_share_one_plugin() {
        let plugins = Plugins::default();
        let times = PluginTimes { run: Duration::from_secs(60), pause: Duration::from_secs(5) };
        let config = |value: serde_json::Value| serde_json::from_value::<ExecConfig>(value).unwrap();
        let plugin = |value: serde_json::Value| plugins.plugin(&config(value), None, times);
        let first = plugin(serde_json::json!({"command": "aws", "args": ["a"], "installHint": "one"}));
        let same = plugin(serde_json::json!({"command": "aws", "args": ["a"], "installHint": "two"}));
        assert!(Arc::ptr_eq(&first, &same), "a hint is for people");
        for other in [
            serde_json::json!({"command": "aws", "args": ["b"]}),
            serde_json::json!({"command": "aws", "args": ["a"], "env": [{"name": "A", "value": "1"}]}),
            serde_json::json!({"command": "aws", "args": ["a"], "provideClusterInfo": true}),
            serde_json::json!({"command": "aws", "args": ["a"], "apiVersion": "client.authentication.k8s.io/v1beta1"}),
        ] {
            assert!(!Arc::ptr_eq(&first, &plugin(other.clone())), "{other}");
        }
        let own = config(serde_json::json!({"command": "aws", "args": ["a"]}));
        let with_policy = plugins.plugin(&own, Some(&Arc::default()), times);
        assert!(!Arc::ptr_eq(&first, &with_policy), "a policy changes the environment");
        drop(with_policy);
        drop((first, same));
        plugin(serde_json::json!({"command": "other"}));
        assert_eq!(plugins.shared.lock().len(), 1, "what nobody uses is forgotten");
    }
}
