//! Requests lists in every form, page by page from any router, and checks the results.

use std::collections::BTreeMap;

use rand::Rng;
use rand::seq::IndexedRandom;
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use super::{Client, KEPT_FOR, Objects, Told, encode};
use crate::follower::Version;
use crate::schedule::Profile;
use crate::truth::{Component, History, Lie, Vector};
use crate::world::{Answer, vector};

/// The options of a list request, and the expectations about its result.
#[derive(Default)]
struct Asked {
    query: Vec<String>,
    /// The requested version, and whether the list must have exactly this version.
    version: Option<(Vector, bool)>,
    /// The time at which a client received the requested version.
    told: Option<Instant>,
    /// For each cluster, the revision at the time of the request, which the list must have reached. `None` if the list
    /// may be older.
    at_least: Option<Vector>,
}

impl Client {
    /// Requests and checks a list of a random form. Returns `None` if the router refused the request for a valid
    /// reason.
    pub(super) async fn list(&mut self, replica: usize) -> anyhow::Result<Option<(Objects, Vector)>> {
        let limit = if self.random.random_bool(0.5) { self.random.random_range(1..6) } else { 0 };
        let mut query = self.query();
        if limit > 0 {
            query.push(format!("limit={limit}"));
        }
        let mut asked = Asked::default();
        match self.random.random_range(0..10) {
            0..5 => asked.at_least = self.world.profile.quorum.then(|| self.world.latest()),
            5..7 => query.push("resourceVersion=0".to_owned()),
            form => {
                let known = self.world.vectors.lock().choose(&mut self.random).cloned();
                if let Some((told, version)) = known {
                    asked.told = Some(told);
                    let name = if form == 9 { "NotOlderThan" } else { "Exact" };
                    query.push(format!("resourceVersion={}&resourceVersionMatch={name}", self.sent(&version)));
                    asked.version = Some((version, form != 9));
                }
            }
        }
        // A list at an exact past version is as old as the first response with this version.
        let of_past = asked.told.filter(|_| asked.version.as_ref().is_some_and(|(_, exact)| *exact));
        self.told = of_past.map_or_else(Told::now, Told::at);
        self.pages(replica, Asked { query, ..asked }).await
    }

    /// Returns the text of a composite version in a random form (long or compact).
    pub(super) fn sent(&mut self, version: &Vector) -> String {
        let compact = self.world.profile.compact && self.random.random_bool(0.5);
        compact.then(|| self.world.compact(version)).flatten().unwrap_or_else(|| encode(version))
    }

    /// Reads all pages of a list, each from a random router.
    async fn pages(&mut self, mut replica: usize, asked: Asked) -> anyhow::Result<Option<(Objects, Vector)>> {
        let path = self.path();
        let (mut objects, mut version, mut left) = (Objects::new(), None, None);
        let mut page = asked.query.clone();
        // After a 410 with a new continue token: the last object before the 410. The remaining pages are from a newer
        // state.
        let mut after = None;
        loop {
            let stable = self.world.configured();
            let replacements = self.world.shown_replacements(replica);
            let answer = self.world.get(replica, &format!("{path}?{}", page.join("&"))).await?;
            let of = version.as_ref().or(asked.version.as_ref().map(|(version, _)| version));
            if !self.is_answered(&asked, of, &answer)? {
                let Some(token) = answer.json["metadata"]["continue"].as_str() else { return Ok(None) };
                anyhow::ensure!(version.is_some() && answer.code == 410, "a token beside {}", answer.json);
                (after, objects, version, left) = (Some(place_of(token)?), Objects::new(), None, None);
                page = self.page(token);
                continue;
            }
            let mut own = vector(&answer.json["metadata"]["resourceVersion"])?;
            self.world.with_truth(|truth| truth.doubts(&replacements, &mut own));
            if let Some(first) = &version
                && *first != own
            {
                anyhow::bail!("the pages of a list have several versions: {first:?}, then {own:?}");
            }
            // Only the first page is checked, because later pages omit clusters that were added after it.
            let present = !page.iter().any(|part| part.contains("continue="));
            if present && stable == self.world.configured() {
                self.names_what_is_missing(&stable.1, &own, &answer)?;
                self.is_new_enough(&asked, &own, &answer)?;
            }
            let items = answer.json["items"].as_array().ok_or_else(|| Lie("a list without items".to_owned()))?;
            anyhow::ensure!(left.is_none_or(|left| left >= items.len() as u64), "more items than were left: {left:?}");
            left = left.map(|left| left - items.len() as u64);
            self.take_items(items, &replacements, &mut objects)?;
            let remaining = answer.json["metadata"]["remainingItemCount"].as_u64();
            anyhow::ensure!(
                left.is_none() || remaining.is_none() || left == remaining,
                "{left:?} were left, not {remaining:?}"
            );
            left = remaining.or(left);
            version = Some(own);
            match answer.json["metadata"]["continue"].as_str() {
                Some(token) => {
                    page = self.page(token);
                    replica = self.replica();
                    let pause = self.random.random_range(0..50);
                    sleep(Duration::from_millis(pause * pause)).await;
                }
                None => break,
            }
        }
        anyhow::ensure!(left.is_none_or(|left| left == 0), "{left:?} items were to follow");
        let version = version.unwrap_or_default();
        if let Some(after) = after {
            self.world.with_truth(|truth| truth.is_state_after(&self.selection, &objects, &version, &after))?;
            return Ok(None);
        }
        self.world.with_truth(|truth| truth.is_state(&self.selection, &objects, &version))?;
        self.holds_what_was_asked(&asked, &version)?;
        // A restore may undo the requested past version before any router detects the restore. The router then answers
        // with the state that has this version after the restore (docs/decisions/0012-undetected-restores-of-etcd.md).
        // The client ignores such a list.
        let is_of_past = asked.version.as_ref().is_some_and(|(_, is_exact)| *is_exact);
        let is_of_either = is_of_past && self.world.with_truth(|truth| truth.is_of_either_era(&version));
        Ok((!is_of_either).then_some((objects, version)))
    }

    fn page(&mut self, token: &str) -> Vec<String> {
        let limit = self.random.random_range(1..6);
        let mut query = self.query();
        query.push(format!("limit={limit}&continue={token}"));
        query
    }

    /// Returns whether a list succeeded. Returns an error if nothing in this run explains an error response. `of` is
    /// the version that the list must have.
    fn is_answered(&self, asked: &Asked, of: Option<&Vector>, answer: &Answer) -> anyhow::Result<bool> {
        match answer.code {
            200 => Ok(true),
            410 | 429 if !self.world.expected.calm => Ok(false),
            410 if of.is_some_and(|version| self.world.is_explained(410, version)) => Ok(false),
            410 if of.is_some_and(|version| self.world.may_have_forgotten(version, KEPT_FOR)) => Ok(false),
            410 if asked.told.is_some_and(|told| told.elapsed() > KEPT_FOR) => Ok(false),
            403 if self.world.profile.forbids => Ok(false),
            // No member serves the resource at this time.
            404 if self.world.profile.hides || self.world.was_bare() => Ok(false),
            // The version is from the other router, and this router does not reach the version within 3 s.
            504 => Ok(false),
            code => anyhow::bail!("a list was refused: {code} {}", answer.json),
        }
    }

    fn take_items(
        &self,
        items: &[Value],
        replacements: &BTreeMap<String, usize>,
        objects: &mut Objects,
    ) -> anyhow::Result<()> {
        for item in items {
            let (cluster, key, state, mut version) = self.world.shown(item)?;
            if let Version::Vector(vector) = &mut version {
                self.world.with_truth(|truth| truth.doubts(replacements, vector));
            }
            let Some(revision) = version.of_item(&cluster) else {
                anyhow::bail!("{cluster} {key}: {version:?} is not the item form")
            };
            let is_own = |history: &History| history.is_version_of(&key, &state, revision);
            let is_own = self.world.with_truth(|truth| truth.history(&cluster).map(is_own))?;
            anyhow::ensure!(is_own, "{cluster} {key} {state:?} does not have the version {revision}");
            let wanted = self.selection.wants(&cluster) && self.selection.matches(&key, &state);
            anyhow::ensure!(wanted, "{cluster} {key} {state:?} is not what was selected");
            if let Some((last, _)) = objects.last_key_value() {
                anyhow::ensure!((&last.0, &last.1) < (&cluster, &key), "{cluster} {key} comes after {last:?}");
            }
            objects.insert((cluster, key), state);
        }
        Ok(())
    }

    /// Checks that a warning names each cluster that is missing in the list.
    fn names_what_is_missing(
        &self,
        configured: &BTreeMap<String, usize>,
        version: &Vector,
        answer: &Answer,
    ) -> anyhow::Result<()> {
        // A cluster that does not serve the resource is not missing, so runs with such clusters skip this check.
        if self.world.profile.hides || self.world.profile.topology {
            return Ok(());
        }
        let wanted = configured.keys().filter(|cluster| self.selection.wants(cluster));
        for cluster in wanted.filter(|cluster| !version.contains_key(*cluster)) {
            let named = answer.warnings.contains(&format!("cluster {cluster}:"));
            anyhow::ensure!(named, "cluster {cluster} is missing without a word: {version:?} {}", answer.warnings);
        }
        Ok(())
    }

    /// Checks that the list contains the state of all members at the time of the request, except for clusters that a
    /// Warning names.
    fn is_new_enough(&self, asked: &Asked, version: &Vector, answer: &Answer) -> anyhow::Result<()> {
        let Profile { restores, topology, hides, replaces, .. } = self.world.profile;
        if restores || topology || hides || replaces {
            return Ok(());
        }
        for (cluster, latest) in asked.at_least.iter().flatten().filter(|(cluster, _)| self.selection.wants(cluster)) {
            let named = answer.warnings.contains(&format!("cluster {cluster}:"));
            let own = version.get(cluster);
            anyhow::ensure!(named || own >= Some(latest), "{cluster} had {latest}, and {version:?} was given");
        }
        Ok(())
    }

    fn holds_what_was_asked(&self, asked: &Asked, version: &Vector) -> anyhow::Result<()> {
        let Some((asked, exact)) = &asked.version else { return Ok(()) };
        if self.world.profile.replaces {
            let is_of_same = |(cluster, own): (&String, &Component)| {
                version.get(cluster).is_none_or(|given| given.is_of_cluster_of(*own))
            };
            anyhow::ensure!(asked.iter().all(is_of_same), "{asked:?} was asked for, and {version:?} given");
        }
        if *exact {
            // Only the clusters in the requested version are compared, because the other clusters contribute their
            // current states.
            let is_given = asked.iter().all(|(cluster, component)| version.get(cluster) == Some(component));
            anyhow::ensure!(is_given, "{asked:?} was asked for, and {version:?} given");
        } else if !self.world.profile.restores {
            for (cluster, component) in asked {
                let own = version.get(cluster);
                anyhow::ensure!(own >= Some(component), "{asked:?} at least was asked for, and {version:?} given");
            }
        }
        Ok(())
    }
}

/// Decodes the position in a continue token: the cluster and the key of the last object before the next page.
fn place_of(token: &str) -> anyhow::Result<(String, String)> {
    use base64::Engine as _;
    let place = token.split('.').nth(1).unwrap_or_default();
    let place: Value = serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(place)?)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok((text(&place["cluster"]), text(&place["after"])))
}
