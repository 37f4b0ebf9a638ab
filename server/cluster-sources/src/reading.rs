//! The members and the refused items of a list.

use std::collections::BTreeMap;

use tributary_apimachinery::ClusterName;
use tributary_crds::{ClusterSourceStatus, RefusedSourceItem};

use crate::item::{RefusedItem, SourceItem};
use crate::source_list::SourceList;

/// Maximum number of refused items in the status of a source.
pub const REFUSED_SHOWN_MAX: usize = 20;

/// The members and the refused items of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceReading {
    /// The members, in the order of their names in the foreign system.
    pub items: Vec<SourceItem>,
    /// The refused items, in the order of their names.
    pub refused: Vec<RefusedItem>,
}

impl SourceReading {
    /// Returns counts and refused items for the status of the source. Conditions are the caller's.
    pub fn status(&self, list: &SourceList) -> ClusterSourceStatus {
        let count = |items: usize| i64::try_from(items).ok();
        let shown = |item: &RefusedItem| RefusedSourceItem {
            name: item.name.clone(),
            reason: item.reason.to_owned(),
            message: item.message.clone(),
        };
        ClusterSourceStatus {
            list: Some(list.field().to_owned()),
            found: count(self.items.len() + self.refused.len()),
            accepted: count(self.items.len()),
            refused: self.refused.iter().take(REFUSED_SHOWN_MAX).map(shown).collect(),
            ..ClusterSourceStatus::default()
        }
    }
}

/// Refuses items with the name or, in Argo CD's list, the server of an older item.
pub(crate) fn settle_items(list: &SourceList, read: Vec<Result<SourceItem, RefusedItem>>) -> SourceReading {
    let mut reading = SourceReading::default();
    let mut items = Vec::with_capacity(read.len());
    for one in read {
        match one {
            Ok(item) => items.push(item),
            Err(refused) => reading.refused.push(refused),
        }
    }
    items.sort_by(|a, b| (&a.created, &a.object_name).cmp(&(&b.created, &b.object_name)));
    let has_unique_servers = matches!(list, SourceList::ArgoCdSecrets(_));
    let mut names: BTreeMap<ClusterName, String> = BTreeMap::new();
    let mut servers: BTreeMap<String, String> = BTreeMap::new();
    for item in items {
        let server = item.spec.endpoints.first().filter(|_| has_unique_servers).cloned();
        let conflict = match (names.get(&item.name), server.as_ref().and_then(|server| servers.get(server))) {
            (Some(older), _) => Some(name_conflict(&item, older)),
            (None, Some(older)) => Some(server_conflict(&item, older)),
            (None, None) => None,
        };
        if let Some(refused) = conflict {
            reading.refused.push(refused);
            continue;
        }
        names.insert(item.name.clone(), item.object_name.clone());
        servers.extend(server.map(|server| (server, item.object_name.clone())));
        reading.items.push(item);
    }
    reading.items.sort_by(|a, b| a.object_name.cmp(&b.object_name));
    reading.refused.sort_by(|a, b| a.name.cmp(&b.name));
    reading
}

fn name_conflict(item: &SourceItem, older: &str) -> RefusedItem {
    let message = format!(
        "{older} already is the cluster {}. Choose a different name by the annotation {}.",
        item.name,
        crate::annotations::CLUSTER_NAME
    );
    RefusedItem { name: item.object_name.clone(), reason: "NameConflict", message }
}

fn server_conflict(item: &SourceItem, older: &str) -> RefusedItem {
    let message = format!(
        "Key \"server\" has the server of {older}, with or without a slash at the end, and Argo CD identifies clusters \
         by their servers. Remove one of the Secrets."
    );
    RefusedItem { name: item.object_name.clone(), reason: "ServerConflict", message }
}
