//! Names of objects and lists of names in messages.

use std::fmt::Display;

use tributary_apimachinery::filter::CLUSTER_LABEL;
use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{ClusterName, Door, GroupVersionResource};

/// Maximum number of names in a message. Of the remaining names, the message contains only the number.
pub(super) const NAMED_MAX: usize = 10;

/// Returns `configmaps "x"`, or `configmaps` for an object that has no name yet.
pub(super) fn object(resource: &GroupVersionResource, name: &str) -> String {
    match name {
        "" => resource.group_resource().to_string(),
        name => format!("{} {}", resource.group_resource(), go_quote(name)),
    }
}

/// Returns whether a name from a request may appear in a suggested command: it consists of characters of Kubernetes
/// names, and a shell interprets none of them.
pub(super) fn can_be_typed(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain)
}

/// Removes the cluster's name from a cause, for texts that already contain the name: `unreachable: cluster eu at x is
/// silent` becomes `unreachable: x is silent`.
pub fn without_name(cause: &str, cluster: &ClusterName) -> String {
    let Some((before, after)) = cause.split_once(&format!("cluster {cluster}")) else { return cause.to_owned() };
    let forms = [(" at ", ""), (": ", ""), (" ", "it ")];
    let found = forms.into_iter().find_map(|(form, instead)| Some((instead, after.strip_prefix(form)?)));
    found.map_or_else(|| cause.to_owned(), |(instead, rest)| format!("{before}{instead}{rest}"))
}

/// Shortens a cause for a table that has the cluster in another column: `cluster eu cannot be reached at x: refused`
/// becomes `x: refused`.
pub fn cause_alone(cause: &str, cluster: &ClusterName) -> String {
    without_name(cause, cluster).replacen("it cannot be reached at ", "", 1)
}

/// Placeholder for the name of a cluster in a suggested command or path.
pub(super) const ANY_CLUSTER: &str = "<name>";

/// Returns the beginning of a kubectl command for one cluster, with `…` for the remainder.
pub(super) fn typed(door: Door, cluster: impl Display) -> String {
    format!("{} …", door.kubectl(cluster))
}

/// Returns the two ways to the API of a single cluster, for messages: the kubectl command, and the path for other
/// clients.
pub fn one_cluster(door: Door) -> String {
    format!("{}, or the path {}", door.kubectl(ANY_CLUSTER), door.cluster_path(ANY_CLUSTER))
}

/// Returns the suggestion to exclude a cluster with a label selector.
pub(super) fn leaves_out(cluster: &str) -> String {
    format!("this label selector omits a cluster: {CLUSTER_LABEL}!={cluster}")
}

/// Joins items: `a, b and 3 more`.
pub fn listed(all: &[impl Display]) -> String {
    let mut text = first(all, ", ");
    if all.len() > NAMED_MAX {
        text.push_str(&format!(" and {} more", all.len() - NAMED_MAX));
    }
    text
}

/// Joins the first [`NAMED_MAX`] items, with `between` as the separator.
pub(super) fn first(all: &[impl Display], between: &str) -> String {
    let named: Vec<_> = all.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    named.join(between)
}
