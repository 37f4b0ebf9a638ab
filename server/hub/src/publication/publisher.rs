//! Writes the published objects while this replica holds the Lease.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};
use tributary_crds::SecretText;
use tributary_router::Report;
use tributary_router::cluster_status::{ClusterStatus, ClusterStatusCondition};
use tributary_router::report::PublicationReport;

use super::collection::PublishedCollection;
use super::kind::{PublishedKind, PublishedPlace};
use super::member_access::{AuthenticatedAccess, MemberAccess, member_states};
use super::monitor::PublicationMonitor;
use super::plan::{Change, plan_changes};
use super::settings::PublicationSettings;
use super::token::TokenKeeper;
use crate::leadership::Leadership;
use crate::lease::RETRY_PERIOD;
use crate::status::fingerprint;
use crate::write_limits::{REFUSED_INTERVAL, WRITE_INTERVAL, WRITE_TIMEOUT};
use crate::{HubClient, HubError};

/// Time from the departure of a member to the deletion of its objects. 10 s: a member whose source is read anew may be
/// absent for a moment.
const DEPARTURE_TIME: Duration = Duration::from_secs(10);

/// The maximum number of problems that the report shows for each kind of published objects.
const PROBLEMS_SHOWN_MAX: usize = 20;

/// The content type of a server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

/// Publishes the members in the hub. [`StatusWriter`](crate::StatusWriter) calls it, so that both share the limit of
/// writes.
pub struct Publisher {
    client: Arc<HubClient>,
    settings: PublicationSettings,
    token: Option<TokenKeeper>,
    /// The present objects; empty while a different replica holds the Lease.
    collections: Vec<PublishedCollection>,
    attempts: HashMap<ObjectPlace, Attempt>,
    /// The time at which a plan first found the object of a departed member.
    departed: HashMap<ObjectPlace, Instant>,
    /// The fingerprint of the inputs of the last plan, if the plan had nothing to write. While the inputs have this
    /// fingerprint, no new plan is made.
    settled: Option<u64>,
    monitor: PublicationMonitor,
}

/// The kind and the name of an object.
type ObjectPlace = (PublishedKind, String);

/// The last write of an object.
struct Attempt {
    at: Instant,
    outcome: Outcome,
}

enum Outcome {
    /// The hub has accepted the change of an object. If the hub dropped fields of the change, the next plan contains
    /// the same change again. The number is the fingerprint of this repeated change, which is never sent, because it
    /// would be repeated without end.
    Accepted(u64),
    /// The hub refuses the write, for this reason.
    Refused(String),
    /// The write may be sent again at once: it created or deleted an object, or the object was changed or deleted
    /// before the write.
    Repeatable,
}

/// The reasons for which objects of each kind are not published or not up to date.
type PublicationProblems = BTreeMap<PublishedKind, Vec<String>>;

/// The state on which a plan depends, beside the present objects.
struct Inputs {
    members: Vec<ClusterStatus>,
    /// Whether the members of all ClusterSources are known.
    is_complete: bool,
    /// The authorities in PEM. `Some(None)` stands for the authorities of the client's system, `None` for an unusable
    /// file.
    authorities: Option<Option<String>>,
    token: Option<SecretText>,
    problems: PublicationProblems,
}

/// The writes of a round.
struct Plan {
    due: Vec<DueChange>,
    /// The number of present objects.
    published: BTreeMap<PublishedKind, u64>,
    /// True if a later round with the same inputs would write nothing.
    is_settled: bool,
}

/// A write that can be sent now.
struct DueChange {
    place: PublishedPlace,
    name: String,
    change: Change,
}

impl Publisher {
    /// Creates a publisher. Sends nothing.
    pub fn new(client: Arc<HubClient>, settings: PublicationSettings) -> Self {
        let (account, audiences) = (settings.service_account.clone(), settings.token_audiences.clone());
        let keeper = |account| TokenKeeper::new(Arc::clone(&client), account, audiences, &settings.instance);
        let token = account.map(keeper);
        Self {
            client,
            settings,
            token,
            collections: Vec::new(),
            attempts: HashMap::new(),
            departed: HashMap::new(),
            settled: None,
            monitor: PublicationMonitor::default(),
        }
    }

    /// Returns a view of the state for the report and the metrics.
    pub fn monitor(&self) -> PublicationMonitor {
        self.monitor.clone()
    }

    /// Ends the watches, because a different replica holds the Lease.
    pub(crate) fn pause(&mut self) {
        if !self.collections.is_empty() {
            self.collections.clear();
            self.attempts.clear();
            self.departed.clear();
            self.settled = None;
            self.monitor.replace(Vec::new());
        }
    }

    /// Writes the objects that are due, until the Lease must be renewed. `is_complete` tells whether the report has the
    /// members of all ClusterSources; otherwise no object is deleted. Cancel: a write may have had its effect.
    pub(crate) async fn write_due(&mut self, report: &Report, is_complete: bool, leadership: &Leadership) {
        let begun = Instant::now();
        self.start_collections();
        let inputs = self.read_inputs(report, is_complete, leadership).await;
        let fingerprint = fingerprint(&self.describe(&inputs));
        if self.settled == Some(fingerprint) {
            return;
        }
        let Plan { due, published, is_settled } = self.plan(&inputs);
        self.settled = is_settled.then_some(fingerprint);
        for DueChange { place, name, change } in due {
            let outcome = self.write(&place, &name, &change, leadership).await;
            let Some(outcome) = outcome else { break };
            self.attempts.insert((place.kind, name), Attempt { at: Instant::now(), outcome });
            sleep(WRITE_INTERVAL).await;
            if begun.elapsed() >= RETRY_PERIOD {
                break;
            }
        }
        self.report(inputs.problems, &published);
    }

    fn start_collections(&mut self) {
        if !self.collections.is_empty() {
            return;
        }
        let PublicationSettings { cluster_profiles, kubeconfig_secrets, argo_cd_secrets, instance, .. } =
            &self.settings;
        let places = [
            (PublishedKind::ClusterProfile, cluster_profiles),
            (PublishedKind::KubeconfigSecret, kubeconfig_secrets),
            (PublishedKind::ArgoCdSecret, argo_cd_secrets),
        ];
        for (kind, namespace) in places {
            let Some(namespace) = namespace.clone() else { continue };
            let place = PublishedPlace { kind, namespace, instance: instance.clone() };
            // `start` fails only for an invalid hub name in logs, and this name is constant and valid.
            self.collections.extend(PublishedCollection::start(&self.client, place));
        }
    }

    async fn read_inputs(&mut self, report: &Report, is_complete: bool, leadership: &Leadership) -> Inputs {
        let mut problems = PublicationProblems::new();
        let mut add_problem = |kind, problem| problems.entry(kind).or_default().push(problem);
        let authorities = self.read_authorities().await;
        let token = match &mut self.token {
            Some(keeper) => keeper.current(leadership).await.cloned(),
            None => None,
        };
        let token_problem = self.token.as_ref().and_then(TokenKeeper::problem);
        for collection in &self.collections {
            let kind = collection.place.kind;
            let of_token = token_problem.filter(|_| kind != PublishedKind::ClusterProfile).map(str::to_owned);
            let of_authorities = authorities.as_ref().err().cloned();
            for problem in [of_token, of_authorities, collection.problem()].into_iter().flatten() {
                add_problem(kind, problem);
            }
        }
        let members = member_states(report, Timestamp::now());
        Inputs { members, is_complete, authorities: authorities.ok(), token, problems }
    }

    /// Returns the authorities for published objects as PEM; `None` for those of the client's system.
    async fn read_authorities(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.settings.authorities_file else { return Ok(self.settings.authorities.clone()) };
        let read = tokio::fs::read(path).await.map_err(|error| error.to_string());
        let checked = read.and_then(|file| read_certificates(&file).map_err(str::to_owned));
        checked.map(Some).map_err(|error| format!("--publish-ca-file {}: {error}", path.display()))
    }

    /// Returns a text of all values on which a plan depends. Equal texts lead to equal plans.
    fn describe(&self, inputs: &Inputs) -> String {
        let condition = |condition: &ClusterStatusCondition| (condition.status, condition.reason);
        let members = inputs.members.iter();
        let members =
            members.map(|one| (&one.origin.name, &one.version, condition(&one.ready), condition(&one.synced)));
        let versions = self.collections.iter().map(PublishedCollection::version);
        let token = inputs.token.as_ref().map(|token| fingerprint(&token.expose()));
        let (members, versions): (Vec<_>, Vec<_>) = (members.collect(), versions.collect());
        let Inputs { is_complete, authorities, problems, .. } = inputs;
        format!("{members:?} {is_complete} {versions:?} {token:?} {authorities:?} {problems:?}")
    }

    /// Returns the writes that are due. The object whose last write is the longest ago comes first.
    fn plan(&mut self, inputs: &Inputs) -> Plan {
        let (now, mut plan) = (Instant::now(), Plan { due: Vec::new(), published: BTreeMap::new(), is_settled: true });
        let (mut absent, mut planned) = (HashMap::new(), HashSet::new());
        for collection in &self.collections {
            let (place, kind) = (&collection.place, collection.place.kind);
            let (Some(present), Some(authorities)) = (collection.objects(), &inputs.authorities) else { continue };
            plan.published.insert(kind, present.len() as u64);
            let access = MemberAccess { address: &self.settings.address, authorities: authorities.as_deref() };
            let token = inputs.token.as_ref();
            let with_token = token.map(|token| AuthenticatedAccess { access: access.clone(), token });
            if kind != PublishedKind::ClusterProfile && with_token.is_none() {
                continue;
            }
            let desired = inputs.members.iter().filter_map(|member| {
                let name = kind.object_name(&member.origin.name);
                let present = present.get(&name).unwrap_or(&Value::Null);
                Some((name, place.desired_object(member, &access, with_token.as_ref(), present)?))
            });
            for (name, change) in plan_changes(desired.collect(), &present, inputs.is_complete) {
                let object = (kind, name.clone());
                let attempt = self.attempts.get(&object);
                let mut is_due = attempt.is_none_or(|attempt| attempt.allows(&change, now));
                // The plan is settled only if the hub has dropped the fields of each of its changes before. These
                // changes are not sent again.
                plan.is_settled &= attempt.is_some_and(|attempt| attempt.is_dropped(&change));
                if matches!(change, Change::Delete(_)) {
                    let since = *self.departed.get(&object).unwrap_or(&now);
                    absent.insert(object.clone(), since);
                    is_due &= now.duration_since(since) >= DEPARTURE_TIME;
                }
                planned.insert(object);
                if is_due {
                    plan.due.push(DueChange { place: place.clone(), name, change });
                }
            }
        }
        self.departed = absent;
        self.attempts.retain(|object, _| planned.contains(object));
        plan.due.sort_by_key(|due| self.attempts.get(&(due.place.kind, due.name.clone())).map(|attempt| attempt.at));
        plan
    }

    fn report(&self, mut problems: PublicationProblems, published: &BTreeMap<PublishedKind, u64>) {
        for ((kind, _), attempt) in &self.attempts {
            if let Outcome::Refused(reason) = &attempt.outcome {
                problems.entry(*kind).or_default().push(reason.clone());
            }
        }
        let states = self.collections.iter().map(|collection| {
            let kind = collection.place.kind;
            let mut problems = problems.remove(&kind).unwrap_or_default();
            let problem_count = problems.len() as u64;
            problems.sort();
            problems.truncate(PROBLEMS_SHOWN_MAX);
            PublicationReport {
                kind: kind.as_str().to_owned(),
                namespace: collection.place.namespace.clone(),
                published: published.get(&kind).copied().unwrap_or_default(),
                problem_count,
                problems,
            }
        });
        self.monitor.replace(states.collect());
    }

    /// Sends a write. Returns `None` without the Lease, and if the hub does not answer.
    async fn write(
        &self,
        place: &PublishedPlace,
        name: &str,
        change: &Change,
        leadership: &Leadership,
    ) -> Option<Outcome> {
        let collection = place.path();
        let (method, path, content_type, body) = match change {
            Change::Create(body) => {
                (Method::POST, format!("{collection}?fieldManager=tributary"), "application/json", body)
            }
            Change::Apply(body) => {
                (Method::PATCH, format!("{collection}/{name}?fieldManager=tributary&force=true"), APPLY, body)
            }
            Change::ApplyStatus(body) => {
                (Method::PATCH, format!("{collection}/{name}/status?fieldManager=tributary&force=true"), APPLY, body)
            }
            Change::Delete(body) => (Method::DELETE, format!("{collection}/{name}"), "application/json", body),
        };
        let sent = timeout(WRITE_TIMEOUT, self.client.send(method, &path, content_type, Some(body)));
        let answer = leadership.send(sent).await.ok()?.ok()?;
        let (kind, namespace) = (place.kind.as_str(), &place.namespace);
        match answer {
            Ok(answer) => Some(match repeated(change, &answer) {
                Some(repeated) => Outcome::Accepted(fingerprint(&repeated)),
                None => Outcome::Repeatable,
            }),
            Err(HubError::Unreachable(_)) => None,
            Err(error) if error.code() == Some(409) && matches!(change, Change::Create(_)) => {
                Some(self.judge_existing(place, name).await)
            }
            Err(error) if matches!(error.code(), Some(404 | 409)) && !matches!(change, Change::Create(_)) => {
                Some(Outcome::Repeatable)
            }
            Err(error) => Some(Outcome::Refused(format!("{kind} {namespace}/{name}: {error}"))),
        }
    }

    /// Returns the outcome for an object that exists although Tributary has not listed it.
    async fn judge_existing(&self, place: &PublishedPlace, name: &str) -> Outcome {
        match self.client.get(&format!("{}/{name}", place.path())).await {
            Ok(object) if place.is_published(&object) => Outcome::Repeatable,
            Ok(_) => Outcome::Refused(format!(
                "{} {}/{name}: the name belongs to an object that this Tributary has not published; delete or rename \
                 that object, or publish to a different namespace",
                place.kind.as_str(),
                place.namespace
            )),
            Err(_) => Outcome::Repeatable,
        }
    }
}

impl Attempt {
    fn allows(&self, change: &Change, now: Instant) -> bool {
        match &self.outcome {
            Outcome::Accepted(_) => !self.is_dropped(change),
            Outcome::Refused(_) => now.duration_since(self.at) >= REFUSED_INTERVAL,
            Outcome::Repeatable => true,
        }
    }

    /// Returns whether the hub has accepted this change, and has dropped fields of it.
    fn is_dropped(&self, change: &Change) -> bool {
        matches!(self.outcome, Outcome::Accepted(repeated) if fingerprint(change) == repeated)
    }
}

/// Returns the same change with the resourceVersion of the hub's answer. The next plan contains this change if the hub
/// has dropped fields of the first one. `None` for a creation or deletion.
fn repeated(change: &Change, answer: &Value) -> Option<Change> {
    let mut repeated = change.clone();
    let (Change::Apply(body) | Change::ApplyStatus(body)) = &mut repeated else { return None };
    body["metadata"]["resourceVersion"] = answer["metadata"]["resourceVersion"].clone();
    Some(repeated)
}

/// Checks that a file has certificates and no private key, and returns its text.
fn read_certificates(file: &[u8]) -> Result<String, &'static str> {
    let text = std::str::from_utf8(file).map_err(|_| "the file is not PEM text")?;
    if text.contains("PRIVATE KEY") {
        return Err("the file has a private key; name a file with certificates alone");
    }
    match CertificateDer::pem_slice_iter(file).next() {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("the file has no certificate; give PEM"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(version: &str, status: &str) -> Change {
        Change::ApplyStatus(json!({"metadata": {"resourceVersion": version}, "status": status}))
    }

    fn attempt(outcome: Outcome) -> Attempt {
        Attempt { at: Instant::now(), outcome }
    }

    /// An older CustomResourceDefinition of ClusterProfile may lack fields, so the hub drops these fields.
    #[tokio::test(start_paused = true)]
    async fn change_whose_fields_the_hub_drops_is_not_repeated() {
        let answer = json!({"metadata": {"resourceVersion": "8"}});
        let expected = repeated(&change("7", "a"), &answer).unwrap();
        assert_eq!(expected, change("8", "a"));
        let accepted = attempt(Outcome::Accepted(fingerprint(&expected)));
        let now = Instant::now();
        assert!(accepted.is_dropped(&change("8", "a")) && !accepted.allows(&change("8", "a"), now));
        assert!(accepted.allows(&change("8", "b"), now), "the desired status has changed");
        assert!(accepted.allows(&change("9", "a"), now), "somebody else has changed the object");
        assert_eq!(repeated(&Change::Create(json!({})), &answer), None);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_write_is_repeated_after_a_minute() {
        let refused = attempt(Outcome::Refused("no".to_owned()));
        assert!(!refused.allows(&change("7", "a"), Instant::now()));
        assert!(refused.allows(&change("7", "a"), Instant::now() + REFUSED_INTERVAL));
        assert!(attempt(Outcome::Repeatable).allows(&change("7", "a"), Instant::now()));
    }

    #[test]
    fn file_of_authorities_has_certificates_alone() {
        let made = rcgen::generate_simple_self_signed(vec!["tributary".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        assert_eq!(read_certificates(certificate.as_bytes()), Ok(certificate.clone()));
        for (file, error) in [
            (format!("{certificate}{key}").into_bytes(), "private key"),
            (b"nothing".to_vec(), "no certificate"),
            (vec![0xff], "not PEM"),
        ] {
            assert!(read_certificates(&file).unwrap_err().contains(error), "{error}");
        }
    }
}
