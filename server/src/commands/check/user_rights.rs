//! Lists the objects that a user can read in each cluster, with the bindings. Tributary's own account reads the roles
//! and sends the access reviews, and the decision is the same as in a running server.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tributary_apimachinery::text::printable;
use tributary_apimachinery::{ClusterAuthorization, ServiceAccount};
use tributary_authentication::{Authority, UserInfo, identity_for};
use tributary_authorization::{Fleet, RbacKind, RbacObject};
use tributary_sources::{ClusterSpec, ConfigurationFlags, ConfigurationSources};

use super::row::{self, CheckRow, ClusterAnswer, LISTED_NAMESPACES_MAX};
use super::served::{self, Served};
use crate::cli::{CheckArguments, GroupResource};
use crate::commands::member::{ClusterAccess, MemberError};
use crate::exit::Failure;
use crate::output::print;

/// The remedy for missing rights of Tributary's account. A server's report contains the same text.
const REVIEW_REMEDY: &str = "tributary join CONTEXT makes an account with this right, or grant the right \
                       (docs/shared-mode.md)";
/// The maximum number of clusters that are queried concurrently.
const CLUSTERS_AT_ONCE_MAX: usize = 16;
/// The number of objects in a page of a list, as in kubectl.
const PAGE_SIZE: usize = 500;

/// Prints the user's rights, cluster by cluster.
///
/// # Errors
/// A usage failure for unknown cluster names. A runtime failure if a cluster does not answer, after the output of all
/// other clusters.
pub(super) async fn print_rights(user: &str, arguments: &CheckArguments) -> Result<(), Failure> {
    let named = ConfigurationFlags {
        config: arguments.config.as_deref(),
        kubeconfig: arguments.kubeconfig.as_deref(),
        has_hub: false,
        contexts: arguments.contexts.as_deref(),
    };
    let sources = ConfigurationSources::new(named).map_err(Failure::usage)?;
    let clusters = sources.read().await.map_err(Failure::usage)?.clusters;
    let asked: Vec<_> =
        clusters.iter().map(|cluster| async move { (cluster, ServedCluster::connect(cluster).await) }).collect();
    let asked: Vec<_> = stream::iter(asked).buffered(CLUSTERS_AT_ONCE_MAX).collect().await;
    let unknown =
        served::unknown(&arguments.resources, asked.iter().map(|(_, own)| own.as_ref().ok().map(|own| &own.served)));
    if !unknown.is_empty() {
        return Err(Failure::usage(anyhow::anyhow!("--resources: {}", unknown.join("; "))));
    }
    let (user, is_account) = user_of(user, &arguments.groups);
    print(&format!("User {:?} in groups {} would see, in each cluster:\n", user.username, user.groups.join(", ")));
    if is_account {
        print(
            "(A ServiceAccount is known only in its own cluster: each cluster is checked for its own ServiceAccount \
             with this name.)\n",
        );
    }
    let told = asked.into_iter().map(|(cluster, asked)| {
        let (user, resources) = (&user, &arguments.resources);
        async move {
            let told = async { asked?.of_user(user, is_account, resources).await };
            (cluster, told.await)
        }
    });
    let told: Vec<_> = told.collect();
    let mut answers = stream::iter(told).buffered(CLUSTERS_AT_ONCE_MAX);
    let mut failed = Vec::new();
    while let Some((cluster, answer)) = answers.next().await {
        let name = &cluster.name;
        match answer {
            Ok(text) => print(&format!("{name}:\n{text}")),
            Err(error) => {
                print(&format!("{name}: cannot be queried: {}\n", printable(&format!("{error:#}"))));
                failed.push(name.to_string());
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::runtime(anyhow::anyhow!("some clusters were not checked: {}", failed.join(", "))))
}

/// Returns a user with this name and groups, and whether the user is a ServiceAccount. A ServiceAccount's name implies
/// its groups.
fn user_of(name: &str, groups: &[String]) -> (UserInfo, bool) {
    let account = ServiceAccount::of_user(name);
    let mut groups = groups.to_vec();
    if let Some(account) = account {
        groups.extend(account.groups().into_iter().filter(|own| !groups.contains(own)).collect::<Vec<_>>());
    }
    let user = UserInfo { username: name.to_owned(), groups, ..UserInfo::default() };
    (user.authenticated(), account.is_some())
}

struct ServedCluster<'a> {
    cluster: &'a ClusterSpec,
    member: ClusterAccess,
    served: Served,
}

impl<'a> ServedCluster<'a> {
    async fn connect(cluster: &'a ClusterSpec) -> anyhow::Result<Self> {
        let config = cluster.config.clone().map_err(|problem| anyhow::anyhow!(problem))?;
        let member = ClusterAccess::new(config)?;
        let served = Served::from_discovery(&member.discovery().await?);
        Ok(Self { cluster, member, served })
    }

    /// Describes a user's rights, resource by resource.
    async fn of_user(self, user: &UserInfo, is_account: bool, resources: &[GroupResource]) -> anyhow::Result<String> {
        let Self { cluster, member, served } = &self;
        let authority = match is_account {
            true => Authority::Member(cluster.name.clone()),
            false => Authority::ClientCertificates,
        };
        let user = &match identity_for(user, &authority, &cluster.name, &cluster.impersonation) {
            Ok(told) => told.authenticated(),
            Err(why) => return Ok(format!("  nothing: {why}\n")),
        };
        let fleet = rights(member, cluster).await?;
        let mut text = String::new();
        for of in resources {
            let namespaced = served.is_namespaced(of);
            let row = CheckRow {
                fleet: &fleet,
                cluster: &cluster.name,
                authorization: cluster.authorization,
                user,
                of,
                namespaced,
            };
            let said = match namespaced {
                Some(_) => self.cluster_answer(&row).await?,
                None => ClusterAnswer::default(),
            };
            text.push_str(&row.lines(&said));
        }
        text.push_str(&row::without_role(&fleet, &cluster.name, user));
        Ok(text)
    }

    /// Sends the access reviews about a resource to the cluster.
    async fn cluster_answer(&self, row: &CheckRow<'_>) -> anyhow::Result<ClusterAnswer> {
        let all = may_list(&self.member, row.user, row.of, "").await?;
        let mut within = BTreeMap::new();
        let is_asked = matches!(row.authorization, ClusterAuthorization::Review | ClusterAuthorization::Live);
        let mut proposed = if all || !is_asked { Vec::new() } else { row.proposed() };
        let unreviewed = proposed.len().saturating_sub(LISTED_NAMESPACES_MAX);
        proposed.truncate(LISTED_NAMESPACES_MAX);
        for namespace in proposed {
            let allowed = may_list(&self.member, row.user, row.of, &namespace).await?;
            within.insert(namespace, allowed);
        }
        let is_reached = is_reached(&self.member, row.user, row.of).await?;
        Ok(ClusterAnswer { all, within, unreviewed, is_reached })
    }
}

/// Reads the roles and bindings of a cluster.
async fn rights(member: &ClusterAccess, cluster: &ClusterSpec) -> anyhow::Result<Fleet> {
    let mut objects = Vec::new();
    for kind in RbacKind::ALL {
        let mut token = String::new();
        loop {
            let resource = kind.resource();
            let path = format!("/apis/rbac.authorization.k8s.io/v1/{resource}?limit={PAGE_SIZE}&continue={token}");
            let page = member.send_request(Method::GET, &path, None, &[]).await?;
            for object in page["items"].as_array().into_iter().flatten() {
                // A role or binding that cannot be parsed grants nothing, as in a running server.
                objects.extend(RbacObject::parse(kind, object.to_string().as_bytes()));
            }
            match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                Some(next) => next.clone_into(&mut token),
                None => break,
            }
        }
    }
    let mut fleet = Fleet::default();
    fleet.replace(&cluster.name, objects);
    Ok(fleet)
}

/// Returns whether the cluster allows the user to list all objects of a resource, or of a resource in a namespace.
async fn may_list(
    member: &ClusterAccess,
    user: &UserInfo,
    of: &GroupResource,
    namespace: &str,
) -> anyhow::Result<bool> {
    let GroupResource { group, resource } = of;
    let asked = json!({"verb": "list", "group": group, "resource": resource, "namespace": namespace});
    let spec = json!({"user": user.username, "groups": user.groups, "resourceAttributes": asked});
    review(member, "SubjectAccessReview", &spec).await
}

/// Returns whether Tributary's account may cache a resource, or may list the resource while it impersonates the user.
/// Constrained impersonation (KEP-5284) suffices, except for ServiceAccounts, which need full impersonation.
async fn is_reached(member: &ClusterAccess, user: &UserInfo, of: &GroupResource) -> anyhow::Result<bool> {
    let GroupResource { group, resource } = of;
    let may = async |verb: &str| {
        let asked = json!({"verb": verb, "group": group, "resource": resource});
        review(member, "SelfSubjectAccessReview", &json!({"resourceAttributes": asked})).await
    };
    let account = ServiceAccount::of_user(&user.username);
    let is_bounded = account.is_none() && may("impersonate-on:user-info:list").await?;
    if is_bounded || (may("list").await? && may("watch").await?) {
        return Ok(true);
    }
    let anybody = match account {
        Some(ServiceAccount { namespace, name }) => {
            json!({"verb": "impersonate", "resource": "serviceaccounts", "namespace": namespace, "name": name})
        }
        None => json!({"verb": "impersonate", "resource": "users", "name": user.username}),
    };
    review(member, "SelfSubjectAccessReview", &json!({"resourceAttributes": anybody})).await
}

/// Sends an access review. Returns whether the request is allowed.
async fn review(member: &ClusterAccess, kind: &str, spec: &Value) -> anyhow::Result<bool> {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let path = format!("/apis/authorization.k8s.io/v1/{}s", kind.to_lowercase());
    let answer: Value = member.send_request(Method::POST, &path, Some(&review), &[]).await.map_err(|error| {
        match error.downcast_ref::<MemberError>() {
            Some(MemberError { code: StatusCode::FORBIDDEN, .. }) => anyhow::anyhow!("{error}; {REVIEW_REMEDY}"),
            _ => error,
        }
    })?;
    Ok(answer["status"]["allowed"] == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_name_implies_its_groups() {
        let groups = |name: &str| {
            let (user, is_account) = user_of(name, &["dev".to_owned()]);
            (user.groups.join(" "), is_account)
        };
        for (name, expected, is_account) in [
            ("ann", "dev system:authenticated", false),
            (
                "system:serviceaccount:shop:robot",
                "dev system:serviceaccounts system:serviceaccounts:shop system:authenticated",
                true,
            ),
            ("system:serviceaccount:shop", "dev system:authenticated", false),
            ("system:serviceaccount:a:b:c", "dev system:authenticated", false),
        ] {
            assert_eq!(groups(name), (expected.to_owned(), is_account), "{name}");
        }
    }
}
