//! What a user would see of each cluster, and by which binding: asked of the clusters by Tributary's own account, and decided
//! as a server decides it.

use futures::{StreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use tributary_apimachinery::text::printable;
use tributary_authentication::{Authority, Reach, UserInfo, identity_for};
use tributary_authorization::{Attributes, Fleet, RbacKind, RbacObject, ResourceAttributes, User, Visible};

use crate::cli::{CheckArguments, ClusterArguments, GroupResource};
use crate::commands::member::Member;
use crate::config_source::{ClusterSpec, ConfigurationSources};
use crate::exit::Failure;
use crate::output::print;

/// How many clusters are asked at once.
const AT_ONCE: usize = 16;
/// How many objects a page has: kubectl's own number.
const PAGE: usize = 500;
/// How many places of a resource are told one by one, each with its binding. Who has more is told how many.
const PLACES_MAX: usize = 10;

/// Tells it, cluster by cluster.
///
/// # Errors
/// A usage failure for clusters that are not well named; a runtime failure where one cannot be asked, after the others
/// were told of.
pub(super) async fn tell(user: &str, arguments: &CheckArguments) -> Result<(), Failure> {
    let named = ClusterArguments {
        config: arguments.config.as_deref(),
        kubeconfig: arguments.kubeconfig.as_deref(),
        contexts: arguments.contexts.as_deref(),
    };
    let sources = ConfigurationSources::new(named).map_err(Failure::usage)?;
    let clusters = sources.read().await.map_err(Failure::usage)?.clusters;
    let user = UserInfo { username: user.to_owned(), groups: arguments.groups.clone(), ..UserInfo::default() };
    let user = user.authenticated();
    print(&format!("User {:?} in groups {} would see, of each cluster:\n", user.username, user.groups.join(", ")));
    let asked = clusters.iter().map(|cluster| {
        let seen = of_cluster(cluster, &user, &arguments.resources);
        async move { (cluster, seen.await) }
    });
    let asked: Vec<_> = asked.collect();
    let mut answers = stream::iter(asked).buffered(AT_ONCE);
    let mut failed = Vec::new();
    while let Some((cluster, answer)) = answers.next().await {
        let name = &cluster.name;
        match answer {
            Ok(text) => print(&format!("{name}:\n{text}")),
            Err(error) => {
                print(&format!("{name}: cannot be asked: {}\n", printable(&format!("{error:#}"))));
                failed.push(name.to_string());
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::runtime(anyhow::anyhow!("not all clusters were asked: {}", failed.join(", "))))
}

async fn of_cluster(cluster: &ClusterSpec, user: &UserInfo, resources: &[GroupResource]) -> anyhow::Result<String> {
    let authority = Authority { verifier: "check".to_owned(), reach: Reach::Everywhere };
    let told = match identity_for(user, &authority, &cluster.name, &cluster.impersonation) {
        Ok(told) => told.authenticated(),
        Err(why) => return Ok(format!("  nothing: {why}\n")),
    };
    let config = cluster.config.clone().map_err(|problem| anyhow::anyhow!(problem))?;
    let member = Member::new(config)?;
    let fleet = rights(&member, cluster).await?;
    let user = User { name: &told.username, groups: &told.groups };
    let mut text = String::new();
    for resource in resources {
        let said = says(&member, user, resource).await?;
        text.push_str(&row(&fleet, cluster, user, resource, said));
    }
    Ok(text)
}

/// The roles and bindings of a cluster.
async fn rights(member: &Member, cluster: &ClusterSpec) -> anyhow::Result<Fleet> {
    let mut objects = Vec::new();
    for kind in RbacKind::ALL {
        let mut token = String::new();
        loop {
            let resource = kind.resource();
            let path = format!("/apis/rbac.authorization.k8s.io/v1/{resource}?limit={PAGE}&continue={token}");
            let page = member.ask(Method::GET, &path, None, &[]).await?;
            for object in page["items"].as_array().into_iter().flatten() {
                // What cannot be read grants nothing here, as in the server.
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

/// Whether the cluster itself says that the user may list all of a resource.
async fn says(member: &Member, user: User<'_>, resource: &GroupResource) -> anyhow::Result<bool> {
    let GroupResource { group, resource } = resource;
    let asked = json!({"verb": "list", "group": group, "resource": resource});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user.name, "groups": user.groups, "resourceAttributes": asked}});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let answer: Value = member.ask(Method::POST, path, Some(&review), &[]).await?;
    Ok(answer["status"]["allowed"] == true)
}

/// What may be seen of a resource, one line for each place. `said`: whether the cluster says that it may all be listed.
fn row(fleet: &Fleet, cluster: &ClusterSpec, user: User<'_>, of: &GroupResource, said: bool) -> String {
    let visible = fleet.rights(&cluster.name, user, "list", &of.group, &of.resource);
    let by = |namespace: &str, name: &str| {
        let asked = ResourceAttributes {
            verb: "list",
            group: &of.group,
            resource: &of.resource,
            subresource: "",
            namespace,
            name,
        };
        let grounds = fleet.grounds(&cluster.name, user, &Attributes::Resource(asked));
        let grounds: Vec<_> = grounds.iter().map(ToString::to_string).collect();
        grounds.join("; ")
    };
    let mut places = Vec::new();
    match &visible {
        Visible::Whole => places.push(format!("all, by {}", by("", ""))),
        Visible::Part(part) => {
            let within = part.namespaces.iter().map(|namespace| format!("in {namespace}, by {}", by(namespace, "")));
            let named = part.names.iter().map(|name| format!("the one named {name}, by {}", by("", name)));
            let both =
                part.names_within.iter().flat_map(|(namespace, names)| names.iter().map(move |name| (namespace, name)));
            let both = both
                .map(|(namespace, name)| format!("the one named {name} in {namespace}, by {}", by(namespace, name)));
            places.extend(within.chain(named).chain(both));
        }
    }
    let more = places.len().saturating_sub(PLACES_MAX);
    places.truncate(PLACES_MAX);
    if more > 0 {
        places.push(format!("and {more} places more"));
    }
    match (said, visible == Visible::Whole) {
        (true, false) => places.push("all, as the cluster itself says: not by its roles".to_owned()),
        (false, true) => {
            places.push("the cluster itself says otherwise: something else than its roles decides".to_owned())
        }
        _ if places.is_empty() => places.push("nothing".to_owned()),
        _ => {}
    }
    let label = of.to_string();
    let lines = places.iter().enumerate().map(|(at, place)| {
        let label = if at == 0 { label.as_str() } else { "" };
        format!("  {label:<28} {}\n", printable(place))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tributary_apimachinery::ClusterName;
    use tributary_router::{ClusterAuthorization, MemberRules};

    use super::*;

    fn cluster() -> ClusterSpec {
        ClusterSpec {
            name: ClusterName::new("eu").unwrap(),
            origin: String::new(),
            config: Err("a test".to_owned()),
            further_endpoints: Vec::new(),
            fingerprint: String::new(),
            user_fingerprint: String::new(),
            warnings: Vec::new(),
            index: None,
            impersonation: MemberRules::default(),
            authorization: ClusterAuthorization::Auto,
            token_review: false,
            passes_tokens: false,
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn each_place_comes_with_its_binding() {
        let (cluster, mut fleet) = (cluster(), Fleet::default());
        let mut put = |kind: RbacKind, object: Value| {
            fleet.upsert(&cluster.name, RbacObject::parse(kind, object.to_string().as_bytes()).unwrap());
        };
        let rules = json!([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["list"], "apiGroups": [""], "resources": ["nodes"], "resourceNames": ["n1"]}]);
        put(RbacKind::ClusterRole, json!({"metadata": {"name": "reader"}, "rules": rules}));
        let role = json!({"kind": "ClusterRole", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"});
        for namespace in 0..12 {
            let subjects = json!([{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}]);
            let metadata = json!({"name": "own", "namespace": format!("n{namespace:02}")});
            put(RbacKind::RoleBinding, json!({"metadata": metadata, "roleRef": role, "subjects": subjects}));
        }
        let subjects = json!([{"kind": "Group", "name": "dev", "apiGroup": "rbac.authorization.k8s.io"}]);
        put(RbacKind::ClusterRoleBinding, json!({"metadata": {"name": "dev"}, "roleRef": role, "subjects": subjects}));
        let of = |text: &str| text.parse::<GroupResource>().unwrap();
        let row = |name, groups: &[&str], resource: &str, said| {
            let groups: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
            super::row(&fleet, &cluster, User { name, groups: &groups }, &of(resource), said)
        };
        let pods = row("ann", &[], "pods", false);
        assert!(
            pods.contains("in n00, by RoleBinding \"own/n00\" of ClusterRole \"reader\" to User \"ann\""),
            "{pods}"
        );
        assert!(pods.lines().count() == PLACES_MAX + 1 && pods.contains("and 2 places more"), "{pods}");
        let all = row("bob", &["dev"], "pods", true);
        assert!(all.contains("pods") && all.contains("all, by ClusterRoleBinding \"dev\""), "{all}");
        assert!(row("bob", &["dev"], "nodes", false).contains("the one named n1, by ClusterRoleBinding"));
        assert!(row("eve", &[], "deployments.apps", false).contains("deployments.apps             nothing"));
        assert!(row("eve", &[], "pods", true).contains("as the cluster itself says: not by its roles"));
        assert!(row("bob", &["dev"], "pods", false).contains("says otherwise"));
    }
}
