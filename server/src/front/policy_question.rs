//! A question to dispatch policies: which rule takes a request, and why. `tributary policy test` asks it of
//! configuration files, or of a running server, at [`PATH`].

mod told;

use anyhow::{Context, ensure};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tributary_apimachinery::{ClusterName, RequestInfo, RequestedResource, Verb};
use tributary_authentication::UserInfo;
use tributary_policy::{DispatchAttributes, DispatchPolicies, DispatchTarget, dispatched_verb, passes_no_policies};
use tributary_router::{DispatchSettings, PlacePolicies};

use self::told::FrozenFor;

/// Where a running server answers, for those who may `get` the path in each cluster. The answer is text for people.
pub const PATH: &str = "/tributary/policy-test";

/// A request that policies are asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyQuestion {
    /// Who sends it.
    pub user: String,
    /// The user's groups, without those that each user of the kind is in: `system:authenticated`, and of a
    /// ServiceAccount for which no group is named those of its namespace.
    pub groups: Vec<String>,
    /// The header `User-Agent`.
    pub user_agent: String,
    /// The verb as RBAC has it; of a request for no resource the method in lower case.
    pub verb: String,
    /// What it asks for.
    pub target: QuestionTarget,
    /// The cluster whose policies alone are asked; below `/clusters/NAME` the path names it.
    pub cluster: Option<ClusterName>,
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuestionTarget {
    /// A path, with a query if it has one.
    Path(String),
    /// A resource.
    Resource(QuestionResource),
}

impl Default for QuestionTarget {
    fn default() -> Self {
        Self::Resource(QuestionResource::default())
    }
}

/// The resource of a request; texts are empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuestionResource {
    /// Its API group.
    pub group: String,
    /// Its name: `pods`.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

impl PolicyQuestion {
    /// The question as a query of [`PATH`].
    pub fn to_query(&self) -> String {
        let mut pairs = vec![("user", &*self.user), ("verb", &self.verb)];
        pairs.extend(self.groups.iter().map(|group| ("group", &**group)));
        match &self.target {
            QuestionTarget::Path(path) => pairs.push(("path", path)),
            QuestionTarget::Resource(of) => pairs.extend([
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

    /// Reads what [`Self::to_query`] writes.
    ///
    /// # Errors
    /// The parameter that is missing, unknown or not understood.
    pub fn of_query(query: &str) -> anyhow::Result<Self> {
        let (mut question, mut resource, mut path) = (Self::default(), QuestionResource::default(), None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8().with_context(|| format!("{name} is not UTF-8"))?;
            let value = value.into_owned();
            match name {
                "user" => question.user = value,
                "group" => question.groups.push(value),
                "userAgent" => question.user_agent = value,
                "verb" => question.verb = value,
                "cluster" => question.cluster = Some(value.parse().context("cluster is no name of one")?),
                "path" => path = Some(value),
                "apiGroup" => resource.group = value,
                "resource" => resource.resource = value,
                "subresource" => resource.subresource = value,
                "namespace" => resource.namespace = value,
                "name" => resource.name = value,
                _ => anyhow::bail!("{name:?} is no parameter of a question to policies"),
            }
        }
        ensure!(!question.user.is_empty() && !question.verb.is_empty(), "a question to policies has a user and a verb");
        question.target = match path {
            Some(path) => {
                ensure!(resource == QuestionResource::default(), "give a path or a resource, not both");
                QuestionTarget::Path(path)
            }
            None => {
                ensure!(!resource.resource.is_empty(), "a question to policies has a path or a resource");
                QuestionTarget::Resource(resource)
            }
        };
        Ok(question)
    }

    /// What policies say, for people. Compiles them anew, so it takes time for each rule that there is.
    ///
    /// # Errors
    /// A path that cannot be asked for, or not by this verb; a cluster that is not configured.
    pub fn answer(&self, settings: &DispatchSettings) -> anyhow::Result<String> {
        let info = match &self.target {
            QuestionTarget::Path(path) => Some(request_of(&self.verb, path)?),
            QuestionTarget::Resource(_) => None,
        };
        let groups = self.all_groups();
        let asked = self.attributes(info.as_ref(), &groups);
        let cluster = info.as_ref().and_then(|info| info.cluster.as_ref()).or(self.cluster.as_ref());
        if let (Some(info), None) = (&info, cluster)
            && info.resource().is_none()
            && passes_no_policies(&info.path)
        {
            return Ok(format!("{}:\n  This endpoint answers it itself: it passes no policies\n", merged_object()));
        }
        let is_for_resource = matches!(asked.target, DispatchTarget::Resource(_));
        let mut out = String::new();
        for (object, PlacePolicies { policies, denies_all }) in subjects(settings, cluster, is_for_resource)? {
            let policies = DispatchPolicies::new(policies.clone());
            let frozen =
                denies_all.then_some(if cluster.is_some() { FrozenFor::Itself } else { FrozenFor::MergedView });
            out.push_str(&told::told(&object, frozen, &policies, &asked));
        }
        Ok(out)
    }

    /// All groups of the user, with those that are added to whom a client asks to be.
    fn all_groups(&self) -> Vec<String> {
        let user = UserInfo { username: self.user.clone(), groups: self.groups.clone(), ..UserInfo::default() };
        user.impersonated().groups
    }

    /// The request as policies look at it.
    fn attributes<'a>(&'a self, info: Option<&'a RequestInfo>, groups: &'a [String]) -> DispatchAttributes<'a> {
        let (user, user_agent) = (&*self.user, tributary_policy::user_agent(&self.user_agent));
        match (info, &self.target) {
            (Some(info), _) => DispatchAttributes::of(info, user, groups, user_agent),
            (None, QuestionTarget::Path(path)) => {
                let target = DispatchTarget::NonResource(path.into());
                DispatchAttributes { user, groups, user_agent, verb: &self.verb, target }
            }
            (None, QuestionTarget::Resource(of)) => {
                let target = RequestedResource {
                    group: &of.group,
                    resource: &of.resource,
                    subresource: &of.subresource,
                    namespace: &of.namespace,
                    name: &of.name,
                };
                let verb = dispatched_verb(&target, &self.verb);
                DispatchAttributes { user, groups, user_agent, verb, target: DispatchTarget::Resource(target) }
            }
        }
    }
}

/// The request for a path, by the method that has the verb.
fn request_of(verb: &str, path: &str) -> anyhow::Result<RequestInfo> {
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
        "the path {path} is never asked for by the verb {verb:?}: {method} of it is {:?}",
        info.requested_verb()
    );
    Ok(info)
}

/// The same query for a watch: what it says besides, such as the name that a selector asks for, counts for policies.
fn watched(query: Option<&str>) -> String {
    let others = query.unwrap_or_default().split('&').filter(|pair| {
        let name = pair.split('=').next();
        !pair.is_empty() && name != Some("watch")
    });
    others.chain(["watch=1"]).collect::<Vec<_>>().join("&")
}

/// The object whose policies are those of the merged view.
fn merged_object() -> String {
    format!("MergedEndpoint {}", tributary_crds::MERGED_ENDPOINT)
}

/// Whose policies a request passes: those of its cluster, or those of the merged view and, if it is for a resource, of
/// whatever clusters follow.
fn subjects<'a>(
    settings: &'a DispatchSettings,
    cluster: Option<&ClusterName>,
    is_for_resource: bool,
) -> anyhow::Result<Vec<(String, &'a PlacePolicies)>> {
    let object = |name: &ClusterName| format!("UpstreamCluster {name}");
    if let Some(name) = cluster {
        let place = settings.clusters.get(name);
        let place = place.with_context(|| format!("there is no UpstreamCluster {:?}", name.as_str()))?;
        return Ok(vec![(object(name), place)]);
    }
    let merged = (merged_object(), &settings.merged);
    let clusters = settings.clusters.iter().filter(|_| is_for_resource);
    Ok(std::iter::once(merged).chain(clusters.map(|(name, place)| (object(name), place))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let resource = QuestionResource {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            subresource: "scale".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        for target in [
            QuestionTarget::Resource(resource),
            QuestionTarget::Path("/api/v1/pods?labelSelector=a%3Db&x=ü".to_owned()),
        ] {
            let question = PolicyQuestion {
                user: "system:serviceaccount:a:b&c=d".to_owned(),
                groups: vec!["one two".to_owned(), "three+four".to_owned()],
                user_agent: "kubectl/v1 (x)".to_owned(),
                verb: "list".to_owned(),
                target,
                cluster: Some("eu".parse().unwrap()),
            };
            assert_eq!(PolicyQuestion::of_query(&question.to_query()).unwrap(), question);
        }
    }

    #[test]
    fn a_watch_is_asked_about_with_all_that_its_query_says() {
        for (path, name) in [
            ("/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dweb", "web"),
            ("/api/v1/namespaces/a/pods?watch=false&fieldSelector=metadata.name=web&watch=0", "web"),
            ("/api/v1/namespaces/a/pods?labelSelector=watch%3Dx", ""),
            ("/api/v1/namespaces/a/pods", ""),
        ] {
            let info = request_of("watch", path).unwrap();
            let asked = DispatchAttributes::of(&info, "ann", &[], "");
            let DispatchTarget::Resource(resource) = asked.target else { panic!("{path}") };
            assert_eq!((asked.verb, resource.name), ("watch", name), "{path}");
        }
        assert_eq!(watched(Some("a=b&watch&c")), "a=b&c&watch=1");
    }

    #[test]
    fn a_question_that_is_not_understood_is_refused() {
        for (query, expected) in [
            ("", "has a user and a verb"),
            ("user=ann&path=/", "has a user and a verb"),
            ("user=ann&verb=get", "has a path or a resource"),
            ("user=ann&verb=get&path=/&resource=pods", "not both"),
            ("user=ann&verb=get&path=/&users=bob", "\"users\" is no parameter"),
            ("user=%ff&verb=get&path=/", "user is not UTF-8"),
            ("user=ann&verb=get&path=/&cluster=A/b", "cluster is no name of one"),
        ] {
            let error = PolicyQuestion::of_query(query).unwrap_err();
            assert!(format!("{error:#}").contains(expected), "{query}: {error:#}");
        }
    }
}
