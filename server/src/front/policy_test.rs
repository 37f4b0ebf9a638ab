//! A described request to dispatch policies, and the explanation of their decision. `tributary policy test` evaluates
//! the request with configuration files, or sends it to a running server at [`PATH`].

mod explanation;
mod verdicts;

use anyhow::{Context, ensure};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tributary_apimachinery::rewrite::without_parameter;
use tributary_apimachinery::{
    ClusterName, GroupVersionResource, RequestInfo, RequestedResource, ResourceRequest, Verb,
};
use tributary_authentication::{Authority, UserInfo, names_beyond_member};
use tributary_policy::{
    DispatchAttributes, DispatchPolicies, DispatchTarget, dispatched_verb, is_exempt_from_policies,
};
use tributary_router::{DispatchSettings, EntryPointPolicies};

use self::explanation::DenyAllView;

/// The path for described requests on a running server. A user must have permission to `get` the path in each cluster.
/// The answer is text.
pub const PATH: &str = "/tributary/policy-test";

/// A described request, on which dispatch policies decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyTestRequest {
    /// The user name in the described request.
    pub user: String,
    /// The user's groups. The group `system:authenticated` is added. For a ServiceAccount without listed groups, the
    /// groups of its namespace are added.
    pub groups: Vec<String>,
    /// The `User-Agent` of the described request.
    pub user_agent: String,
    /// The verb of RBAC. For a request without a resource, the HTTP method in lower case.
    pub verb: String,
    /// The target of the described request.
    pub target: PolicyTestTarget,
    /// The cluster whose dispatch policies are evaluated. A path below `/clusters/NAME` selects that cluster.
    pub cluster: Option<ClusterName>,
}

/// The target of a described request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyTestTarget {
    /// The path of the described request, with an optional query.
    Path(String),
    /// The resource of the described request.
    Resource(PolicyTestResource),
}

impl Default for PolicyTestTarget {
    fn default() -> Self {
        Self::Resource(PolicyTestResource::default())
    }
}

/// The resource of a described request; unused fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyTestResource {
    /// The API group of the resource; empty for the core group.
    pub group: String,
    /// The plural name of the resource, for example `pods`.
    pub resource: String,
    /// The subresource, for example `scale`.
    pub subresource: String,
    /// The namespace of the object; empty for none.
    pub namespace: String,
    /// The name of the object; empty for none.
    pub name: String,
}

impl PolicyTestResource {
    /// Builds the request for the resource, as the server would parse it from a path and a query.
    ///
    /// # Errors
    /// The described request has a name, but policies see no name in a request with this verb.
    fn request(&self, verb: &str) -> anyhow::Result<ResourceRequest> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let is_of_one =
            !matches!((verb, &*self.subresource), ("create", "") | ("list" | "watch" | "deletecollection", _));
        let is_selected = matches!(verb, "list" | "watch");
        ensure!(
            self.name.is_empty() || is_of_one || is_selected,
            "a request with the verb {verb:?} has no object name in its path, so policies see no name; remove the name"
        );
        Ok(ResourceRequest {
            // The version `v1` is arbitrary, because policies apply to all versions of a resource.
            resource: GroupVersionResource::new(&self.group, "v1", &self.resource),
            namespace: given(&self.namespace),
            name: given(&self.name).filter(|_| is_of_one),
            subresource: given(&self.subresource),
            rest: None,
            selected_name: given(&self.name).filter(|_| is_selected),
        })
    }
}

impl PolicyTestRequest {
    /// Formats the described request as a query of [`PATH`].
    pub fn to_query(&self) -> String {
        let mut pairs = vec![("user", &*self.user), ("verb", &self.verb)];
        pairs.extend(self.groups.iter().map(|group| ("group", &**group)));
        match &self.target {
            PolicyTestTarget::Path(path) => pairs.push(("path", path)),
            PolicyTestTarget::Resource(of) => pairs.extend([
                ("resource", &*of.resource),
                ("apiGroup", &of.group),
                ("subresource", &of.subresource),
                ("namespace", &of.namespace),
                ("name", &of.name),
            ]),
        }
        pairs.push(("userAgent", &self.user_agent));
        pairs.extend(self.cluster.as_ref().map(|cluster| ("cluster", cluster.as_str())));
        let written = pairs.iter().filter(|(_, value)| !value.is_empty());
        let written = written.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
        written.collect::<Vec<_>>().join("&")
    }

    /// Parses a query that [`Self::to_query`] has formatted.
    ///
    /// # Errors
    /// The missing, unknown or invalid parameter.
    pub fn from_query(query: &str) -> anyhow::Result<Self> {
        let (mut test_request, mut resource, mut path) = (Self::default(), PolicyTestResource::default(), None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8().with_context(|| format!("{name} is not UTF-8"))?;
            let value = value.into_owned();
            match name {
                "user" => test_request.user = value,
                "group" => test_request.groups.push(value),
                "userAgent" => test_request.user_agent = value,
                "verb" => test_request.verb = value,
                "cluster" => {
                    test_request.cluster = Some(value.parse().context("the value of cluster is not a cluster name")?)
                }
                "path" => path = Some(value),
                "apiGroup" => resource.group = value,
                "resource" => resource.resource = value,
                "subresource" => resource.subresource = value,
                "namespace" => resource.namespace = value,
                "name" => resource.name = value,
                _ => anyhow::bail!("{name:?} is not a parameter of a policy test"),
            }
        }
        ensure!(
            !test_request.user.is_empty() && !test_request.verb.is_empty(),
            "a policy test needs a user and a verb"
        );
        test_request.target = match path {
            Some(path) => {
                ensure!(resource == PolicyTestResource::default(), "give a path or a resource, not both");
                PolicyTestTarget::Path(path)
            }
            None => {
                ensure!(!resource.resource.is_empty(), "a policy test needs a path or a resource");
                PolicyTestTarget::Resource(resource)
            }
        };
        Ok(test_request)
    }

    /// Explains how the dispatch policies decide about the described request. Compiles all policies again, so the cost
    /// grows with the number of rules.
    ///
    /// # Errors
    /// An invalid path; a path that does not exist with this verb; a name with a verb whose requests have no name; an
    /// unknown cluster.
    pub fn evaluate(&self, settings: &DispatchSettings) -> anyhow::Result<String> {
        let read = self.read()?;
        let user = self.user_with_all_groups();
        let asked = self.attributes(&read, user.username.as_str(), user.groups.as_slice());
        let info = match &read {
            ParsedTarget::Path(info) => Some(info),
            ParsedTarget::Resource(_) => None,
        };
        let cluster = info.and_then(|info| info.cluster.as_ref()).or(self.cluster.as_ref());
        let counted = user_in_merged_view(&user);
        let counted = self.attributes(&read, counted.username.as_str(), counted.groups.as_slice());
        let clusters = named_clusters(settings, cluster)?;
        let compiled = Compiled::new(settings, &clusters);
        let mut out = String::new();
        if let Some(global) = &compiled.global {
            out.push_str(&explanation::describe_policies(
                &format!("{}, globally", merged_object()),
                None,
                global,
                &asked,
            ));
            out.push_str(&explanation::describe_member_user(global, &asked, &counted));
        }
        let is_own = |info: &&RequestInfo| info.resource().is_none() && is_exempt_from_policies(&info.path);
        let is_answered_here = cluster.is_none() && info.is_some_and(|info| is_own(&info));
        if is_answered_here {
            out.push_str(&format!("{}:\n  {}\n", merged_object(), explanation::ANSWERED_HERE));
        } else if cluster.is_none() {
            out.push_str(&explanation::describe_policies(&merged_object(), None, &compiled.merged, &asked));
            out.push_str(&explanation::describe_member_user(&compiled.merged, &asked, &counted));
        }
        let is_for_resource = matches!(asked.target, DispatchTarget::Resource(_));
        for own in compiled.clusters.iter().filter(|_| cluster.is_some() || is_for_resource) {
            let place = if cluster.is_some() { DenyAllView::Itself } else { DenyAllView::MergedView };
            let frozen = own.denies_all.then_some(place);
            out.push_str(&explanation::describe_policies(
                &format!("UpstreamCluster {}", own.name),
                frozen,
                &own.policies,
                &asked,
            ));
        }
        let merged = cluster.is_none().then_some((is_answered_here, is_for_resource));
        out.push_str(&verdicts::list_verdicts(&compiled, merged, &asked));
        Ok(out)
    }

    /// Parses the target of the described request as the server does.
    fn read(&self) -> anyhow::Result<ParsedTarget> {
        Ok(match &self.target {
            PolicyTestTarget::Path(path) => ParsedTarget::Path(build_request(&self.verb, path)?),
            PolicyTestTarget::Resource(of) => ParsedTarget::Resource(of.request(&self.verb)?),
        })
    }

    /// Returns the user of the described request with all groups, including the groups that clusters add to an
    /// impersonated user.
    fn user_with_all_groups(&self) -> UserInfo {
        let user = UserInfo { username: self.user.clone(), groups: self.groups.clone(), ..UserInfo::default() };
        user.impersonated()
    }

    /// Returns the attributes on which policies decide, with this user name and these groups.
    fn attributes<'a>(&'a self, read: &'a ParsedTarget, user: &'a str, groups: &'a [String]) -> DispatchAttributes<'a> {
        let user_agent = tributary_policy::user_agent(&self.user_agent);
        match read {
            ParsedTarget::Path(info) => DispatchAttributes::from_request(info, user, groups, user_agent),
            ParsedTarget::Resource(request) => {
                let target = RequestedResource::from_request(request);
                let verb = dispatched_verb(&target, &self.verb);
                DispatchAttributes { user, groups, user_agent, verb, target: DispatchTarget::Resource(target) }
            }
        }
    }
}

/// The parsed target of a described request.
enum ParsedTarget {
    Path(RequestInfo),
    Resource(ResourceRequest),
}

/// Returns the name and the groups that policies of the merged view use for a user that only one cluster authenticates.
fn user_in_merged_view(user: &UserInfo) -> UserInfo {
    // The name of the cluster is arbitrary, because the result does not depend on it.
    let Ok(authority) = ClusterName::new("a").map(Authority::Member) else { return user.clone() };
    let (username, groups) = names_beyond_member(user, &authority);
    UserInfo { username: username.into_owned(), groups: groups.into_owned(), ..UserInfo::default() }
}

/// Parses a path into a request with the verb's method.
fn build_request(verb: &str, path: &str) -> anyhow::Result<RequestInfo> {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let watching = (verb == "watch").then(|| watched(query));
    let query = watching.as_deref().or(query);
    let (method, query) = match verb {
        "list" | "watch" => ("GET".to_owned(), query),
        "create" => ("POST".to_owned(), query),
        "update" => ("PUT".to_owned(), query),
        "deletecollection" => ("DELETE".to_owned(), query),
        method => (method.to_uppercase(), query),
    };
    let info = RequestInfo::parse(&method, path, query)
        .map_err(|status| anyhow::anyhow!("the path {path}: {}", status.message))?;
    let is_meant = info.requested_verb() == verb || info.verb == Verb::NonResource("head");
    ensure!(
        is_meant,
        "no request for the path {path} has the verb {verb:?}: its {method} has the verb {:?}",
        info.requested_verb()
    );
    Ok(info)
}

/// Adds `watch=1` to a query. The query's other parameters stay, because policies evaluate them, for example a selector
/// with a name.
fn watched(query: Option<&str>) -> String {
    let others = without_parameter(query.unwrap_or_default(), "watch");
    if others.is_empty() { "watch=1".to_owned() } else { others + "&watch=1" }
}

/// Returns the name of the configuration object that contains the policies of the merged view.
fn merged_object() -> String {
    format!("MergedEndpoint {}", tributary_crds::MERGED_ENDPOINT)
}

/// Returns the cluster that the described request names, or all clusters.
fn named_clusters<'a>(
    settings: &'a DispatchSettings,
    cluster: Option<&ClusterName>,
) -> anyhow::Result<Vec<(&'a ClusterName, &'a EntryPointPolicies)>> {
    let Some(name) = cluster else { return Ok(settings.clusters.iter().collect()) };
    let place = settings.clusters.get_key_value(name);
    Ok(vec![place.with_context(|| format!("there is no UpstreamCluster {:?}", name.as_str()))?])
}

/// The compiled policies that apply to a described request.
struct Compiled<'a> {
    /// The policies that apply to the merged view and to all clusters. `None` if the MergedEndpoint has no such
    /// policies.
    global: Option<DispatchPolicies>,
    merged: DispatchPolicies,
    clusters: Vec<CompiledCluster<'a>>,
}

struct CompiledCluster<'a> {
    name: &'a ClusterName,
    denies_all: bool,
    policies: DispatchPolicies,
}

impl<'a> Compiled<'a> {
    fn new(settings: &DispatchSettings, clusters: &[(&'a ClusterName, &'a EntryPointPolicies)]) -> Self {
        let clusters = clusters.iter().map(|(name, place)| CompiledCluster {
            name,
            denies_all: place.denies_all,
            policies: DispatchPolicies::new(place.policies.clone()),
        });
        Self {
            global: (!settings.global.is_empty()).then(|| DispatchPolicies::global(settings.global.clone())),
            merged: DispatchPolicies::new(settings.merged.policies.clone()),
            clusters: clusters.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::built_in::{all_built_in, built_in};

    use super::*;

    #[test]
    fn policy_test_query_survives_a_round_trip() {
        let resource = PolicyTestResource {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            subresource: "scale".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        for target in [
            PolicyTestTarget::Resource(resource),
            PolicyTestTarget::Path("/api/v1/pods?labelSelector=a%3Db&x=ü".to_owned()),
        ] {
            let test_request = PolicyTestRequest {
                user: "system:serviceaccount:a:b&c=d".to_owned(),
                groups: vec!["one two".to_owned(), "three+four".to_owned()],
                user_agent: "kubectl/v1 (x)".to_owned(),
                verb: "list".to_owned(),
                target,
                cluster: Some("eu".parse().unwrap()),
            };
            assert_eq!(PolicyTestRequest::from_query(&test_request.to_query()).unwrap(), test_request);
        }
    }

    #[test]
    fn policy_test_parses_a_resource_like_its_path() {
        let seen = |test_request: &PolicyTestRequest| {
            let read = test_request.read().unwrap();
            let asked = test_request.attributes(&read, "ann", &[]);
            (asked.verb.to_owned(), format!("{:?}", asked.target))
        };
        for (group, resource, _) in all_built_in() {
            let (_, is_namespaced) = built_in(group, resource).unwrap();
            let namespace = if is_namespaced { "shop" } else { "" };
            let place = if is_namespaced { "/namespaces/shop" } else { "" };
            let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
            for (verb, rest, name, subresource) in [
                ("get", "/x", "x", ""),
                ("update", "/x", "x", ""),
                ("patch", "/x", "x", ""),
                ("delete", "/x", "x", ""),
                ("patch", "/x/status", "x", "status"),
                ("create", "", "", ""),
                ("list", "", "", ""),
                ("list", "?fieldSelector=metadata.name%3Dx", "x", ""),
                ("watch", "?fieldSelector=metadata.name%3Dx", "x", ""),
                ("deletecollection", "", "", ""),
            ] {
                let [group, resource, subresource, namespace, name] =
                    [group, resource, subresource, namespace, name].map(str::to_owned);
                let path = format!("{root}{place}/{resource}{rest}");
                let of = PolicyTestResource { group, resource, subresource, namespace, name };
                let [by_path, by_name] = [PolicyTestTarget::Path(path.clone()), PolicyTestTarget::Resource(of)]
                    .map(|target| PolicyTestRequest { verb: verb.to_owned(), target, ..PolicyTestRequest::default() });
                assert_eq!(seen(&by_name), seen(&by_path), "{verb} {path}");
            }
        }
    }

    #[test]
    fn policy_test_refuses_a_name_for_verbs_without_names() {
        for (verb, subresource, is_refused) in
            [("create", "", true), ("deletecollection", "", true), ("create", "exec", false), ("list", "", false)]
        {
            let [resource, subresource, name] = ["pods", subresource, "web"].map(str::to_owned);
            let of = PolicyTestResource { resource, subresource, name, ..PolicyTestResource::default() };
            let refused = of.request(verb).map_err(|error| error.to_string());
            assert_eq!(refused.as_ref().is_err_and(|error| error.contains("remove the name")), is_refused, "{verb}");
        }
    }

    #[test]
    fn policy_test_of_a_watch_uses_the_field_selectors_name() {
        for (path, name) in [
            ("/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dweb", "web"),
            ("/api/v1/namespaces/a/pods?watch=false&fieldSelector=metadata.name=web&watch=0", "web"),
            ("/api/v1/namespaces/a/pods?labelSelector=watch%3Dx", ""),
            ("/api/v1/namespaces/a/pods", ""),
        ] {
            let info = build_request("watch", path).unwrap();
            let asked = DispatchAttributes::from_request(&info, "ann", &[], "");
            let DispatchTarget::Resource(resource) = asked.target else { panic!("{path}") };
            assert_eq!((asked.verb, resource.name), ("watch", name), "{path}");
        }
        assert_eq!(watched(Some("a=b&watch&c")), "a=b&c&watch=1");
        assert_eq!(watched(Some("w%61tch=0")), "watch=1");
    }

    #[test]
    fn malformed_policy_test_query_is_refused() {
        for (query, expected) in [
            ("", "needs a user and a verb"),
            ("user=ann&path=/", "needs a user and a verb"),
            ("user=ann&verb=get", "needs a path or a resource"),
            ("user=ann&verb=get&path=/&resource=pods", "not both"),
            ("user=ann&verb=get&path=/&users=bob", "\"users\" is not a parameter"),
            ("user=%ff&verb=get&path=/", "user is not UTF-8"),
            ("user=ann&verb=get&path=/&cluster=A/b", "the value of cluster is not a cluster name"),
        ] {
            let error = PolicyTestRequest::from_query(query).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{query}: {error:#}");
        }
    }
}
