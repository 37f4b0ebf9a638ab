//! Generates kubeconfigs with simulated members as contexts.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::SimulatedCluster;

/// Returns a kubeconfig with one context per member, under the member's name. The first member is the current context.
///
/// The text contains the members' tokens, so a file with the text must have mode 0600.
pub fn kubeconfig<'a>(members: impl IntoIterator<Item = &'a SimulatedCluster>) -> String {
    let (mut clusters, mut contexts, mut users) = (String::new(), String::new(), String::new());
    let mut current = String::new();
    for member in members {
        let name = member.name();
        if current.is_empty() {
            name.clone_into(&mut current);
        }
        let ca = STANDARD.encode(member.ca_pem());
        // Writing to a String cannot fail.
        let _ = write!(
            clusters,
            "- name: {name}\n  cluster:\n    server: {}\n    certificate-authority-data: {ca}\n",
            member.url()
        );
        let _ = write!(contexts, "- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\n");
        let _ = write!(users, "- name: {name}\n  user:\n    token: {}\n", member.token());
    }
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {current}\nclusters:\n{clusters}contexts:\n{contexts}users:\n{users}"
    )
}

impl SimulatedCluster {
    /// Returns a kubeconfig with a single context for this member.
    pub fn kubeconfig(&self) -> String {
        kubeconfig([self])
    }
}
