//! One rule of a role, and what it allows: `pkg/apis/rbac/v1/evaluation_helpers.go` of Kubernetes 1.36, word for word.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use crate::attributes::{Attributes, ResourceAttributes};

/// What stands for every verb, group, resource or path.
const ALL: &str = "*";

/// Takes an absent field or a `null` for an empty list or text, as Kubernetes' decoder does.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A PolicyRule as its role has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Rule {
    /// The verbs; `*` is all.
    #[serde(deserialize_with = "or_default")]
    pub verbs: Vec<Arc<str>>,
    /// The API groups; `*` is all.
    #[serde(deserialize_with = "or_default")]
    pub api_groups: Vec<Arc<str>>,
    /// `pods`, `pods/log`, `*/scale`; `*` is all.
    #[serde(deserialize_with = "or_default")]
    pub resources: Vec<Arc<str>>,
    /// The names that the rule is limited to; none is no limit.
    #[serde(deserialize_with = "or_default")]
    pub resource_names: Vec<Arc<str>>,
    /// Paths, with `*` at the end for what begins so. `NonResourceURLs` in Go, and spelled `nonResourceURLs`.
    #[serde(rename = "nonResourceURLs", deserialize_with = "or_default")]
    pub non_resource_urls: Vec<Arc<str>>,
}

impl Rule {
    /// Whether the rule allows the request (`RuleAllows`). Where it applies is its binding's matter.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        match attributes {
            Attributes::Resource(attributes) => self.covers(attributes) && self.names(attributes.name),
            Attributes::NonResource { verb, path } => self.has_verb(verb) && self.has_path(path),
        }
    }

    /// Whether verb, group, resource and subresource match, whatever the name.
    pub(crate) fn covers(&self, attributes: &ResourceAttributes<'_>) -> bool {
        self.has_verb(attributes.verb)
            && has(&self.api_groups, attributes.group)
            && self.resources.iter().any(|resource| resource_matches(resource, attributes))
    }

    /// Whether the rule reaches this name; the empty name is a request without one.
    fn names(&self, name: &str) -> bool {
        self.resource_names.is_empty() || self.resource_names.iter().any(|own| **own == *name)
    }

    fn words(&self) -> usize {
        let Self { verbs, api_groups, resources, resource_names, non_resource_urls } = self;
        [verbs, api_groups, resources, resource_names, non_resource_urls].map(Vec::len).iter().sum()
    }

    fn has_verb(&self, verb: &str) -> bool {
        has(&self.verbs, verb)
    }

    fn has_path(&self, path: &str) -> bool {
        let matches = |own: &str| {
            own == ALL || own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
        };
        self.non_resource_urls.iter().any(|own| matches(own))
    }
}

fn has(own: &[Arc<str>], asked: &str) -> bool {
    own.iter().any(|own| **own == *ALL || **own == *asked)
}

fn resource_matches(own: &str, asked: &ResourceAttributes<'_>) -> bool {
    if own == ALL {
        return true;
    }
    if asked.subresource.is_empty() {
        return own == asked.resource;
    }
    let below =
        |resource: &str| own.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')) == Some(asked.subresource);
    below(asked.resource) || below(ALL)
}

/// The rules of a role, with what tells at once that none of them can match.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    rules: Vec<(Marks, Rule)>,
    marks: Marks,
    /// How many words there are in all of them, and one for each.
    words: usize,
}

/// One bit of 64 for each verb, and for each resource or path, chosen by its text; all bits where a wildcard stands.
/// A request whose bits are not among a rule's cannot match it: most rules are passed over without reading their texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Marks {
    verbs: u64,
    things: u64,
}

impl Marks {
    fn of_rule(rule: &Rule) -> Self {
        let bits = |texts: &[Arc<str>], part: fn(&str) -> &str| {
            let bits_of = |text: &str| if text.contains('*') { u64::MAX } else { bit_of(part(text)) };
            texts.iter().fold(0, |bits, text| bits | bits_of(text))
        };
        let things = bits(&rule.resources, without_subresource) | bits(&rule.non_resource_urls, whole);
        Self { verbs: bits(&rule.verbs, whole), things }
    }

    /// Of a request.
    pub(crate) fn of_request(attributes: &Attributes<'_>) -> Self {
        match attributes {
            Attributes::Resource(asked) => {
                Self { verbs: bit_of(asked.verb), things: bit_of(without_subresource(asked.resource)) }
            }
            Attributes::NonResource { verb, path } => Self { verbs: bit_of(verb), things: bit_of(path) },
        }
    }

    fn may_match(self, asked: Self) -> bool {
        self.verbs & asked.verbs != 0 && self.things & asked.things != 0
    }
}

fn whole(text: &str) -> &str {
    text
}

fn without_subresource(resource: &str) -> &str {
    resource.split_once('/').map_or(resource, |(resource, _)| resource)
}

/// FNV-1a: short texts, and whoever chooses them so that they meet makes only their own rules slower.
fn bit_of(text: &str) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    // The upper bits: the lowest ones of a product depend on few bits of its factors.
    1 << (hash >> 58)
}

impl Rules {
    pub(crate) fn new(rules: Vec<Rule>) -> Self {
        let rules: Vec<_> = rules.into_iter().map(|rule| (Marks::of_rule(&rule), rule)).collect();
        let join = |all: Marks, (marks, _): &(Marks, Rule)| Marks {
            verbs: all.verbs | marks.verbs,
            things: all.things | marks.things,
        };
        let marks = rules.iter().fold(Marks::default(), join);
        let words = rules.iter().map(|(_, rule)| 1 + rule.words()).sum();
        Self { rules, marks, words }
    }

    /// How much there is to look at: the words of the rules, and one for each.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// Every rule.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|(_, rule)| rule)
    }

    /// The rules that may match a request with these marks.
    pub(crate) fn candidates(&self, asked: Marks) -> impl Iterator<Item = &Rule> {
        let rules: &[_] = if self.marks.may_match(asked) { &self.rules } else { &[] };
        rules.iter().filter(move |(marks, _)| marks.may_match(asked)).map(|(_, rule)| rule)
    }

    /// Whether one of them allows the request.
    pub(crate) fn allow(&self, attributes: &Attributes<'_>, asked: Marks) -> bool {
        self.candidates(asked).any(|rule| rule.allows(attributes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<Arc<str>> {
        // A word `''` is the empty text: the core group, or no name.
        text.split_whitespace().map(|word| if word == "''" { "".into() } else { word.into() }).collect()
    }

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> Rule {
        Rule {
            verbs: texts(verbs),
            api_groups: texts(groups),
            resources: texts(resources),
            resource_names: texts(names),
            non_resource_urls: Vec::new(),
        }
    }

    /// Asks the rule, and the rules of a role that has it alone.
    fn allows(rule: &Rule, attributes: &Attributes<'_>) -> bool {
        let alone = rule.allows(attributes);
        let role = Rules::new(vec![Rule::default(), rule.clone()]);
        assert_eq!(role.allow(attributes, Marks::of_request(attributes)), alone, "{rule:?} {attributes:?}");
        alone
    }

    /// Rule, request as `verb group resource/subresource name`, whether it is allowed.
    #[test]
    fn a_rule_allows_what_its_words_say() {
        let cases = [
            (rule("get", "''", "pods", ""), ["get", "", "pods", "", "p"], true),
            (rule("get", "''", "pods", ""), ["list", "", "pods", "", ""], false),
            (rule("get", "''", "pods", ""), ["get", "apps", "pods", "", "p"], false),
            (rule("get", "''", "pods", ""), ["get", "", "pods", "log", "p"], false),
            (rule("get", "''", "pods/log", ""), ["get", "", "pods", "log", "p"], true),
            (rule("get", "''", "pods/log", ""), ["get", "", "pods", "", "p"], false),
            // A SubjectAccessReview may ask so; the text is the same.
            (rule("get", "''", "pods/log", ""), ["get", "", "pods/log", "", "p"], true),
            (rule("get", "''", "*/log", ""), ["get", "", "pods", "log", "p"], true),
            (rule("get", "''", "*/log", ""), ["get", "", "pods", "", "p"], false),
            (rule("get", "''", "*/lo", ""), ["get", "", "pods", "log", "p"], false),
            (rule("get", "''", "pods/*", ""), ["get", "", "pods", "log", "p"], false),
            (rule("get", "''", "pods/*", ""), ["get", "", "pods", "*", "p"], true),
            (rule("*", "*", "*", ""), ["frobnicate", "x.io", "things", "any", "p"], true),
            (rule("*", "''", "*", ""), ["get", "x.io", "things", "", "p"], false),
            (rule("get", "*", "pods", ""), ["get", "x.io", "pods", "", "p"], true),
            (rule("get", "", "pods", ""), ["get", "", "pods", "", "p"], false),
            (rule("get", "''", "", ""), ["get", "", "pods", "", "p"], false),
            (rule("", "''", "pods", ""), ["get", "", "pods", "", "p"], false),
            (rule("GET", "''", "pods", ""), ["get", "", "pods", "", "p"], false),
            // A wildcard is a whole word, and one that is asked for is a word like another.
            (rule("get*", "''", "pods", ""), ["get", "", "pods", "", "p"], false),
            (rule("get", "''", "po*", ""), ["get", "", "pods", "", "p"], false),
            (rule("get", "''", "pods", ""), ["*", "", "pods", "", "p"], false),
            (rule("get", "''", "pods", ""), ["get", "", "*", "", "p"], false),
            // Names: what has none, a create or a plain list, is reached by no rule with names,
            (rule("*", "''", "pods", "p q"), ["get", "", "pods", "", "q"], true),
            (rule("*", "''", "pods", "p q"), ["get", "", "pods", "", "r"], false),
            (rule("*", "''", "pods", "p q"), ["create", "", "pods", "", ""], false),
            (rule("*", "''", "pods", "p q"), ["list", "", "pods", "", ""], false),
            (rule("*", "''", "pods", "p q"), ["watch", "", "pods", "", "q"], true),
            (rule("*", "''", "pods", "p q"), ["deletecollection", "", "pods", "", ""], false),
            // but by one that has the empty name,
            (rule("*", "''", "pods", "''"), ["list", "", "pods", "", ""], true),
            (rule("*", "''", "pods", "''"), ["get", "", "pods", "", "p"], false),
            // and `*` is no wildcard among names.
            (rule("*", "''", "pods", "*"), ["get", "", "pods", "", "p"], false),
        ];
        for (rule, [verb, group, resource, subresource, name], expected) in cases {
            let asked = ResourceAttributes { verb, group, version: "v1", resource, subresource, namespace: "n", name };
            assert_eq!(allows(&rule, &Attributes::Resource(asked)), expected, "{rule:?} {asked:?}");
        }
    }

    #[test]
    fn paths_match_whole_or_by_what_they_begin_with() {
        let cases = [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/", false),
            ("/healthz/*", "/healthz/etcd", true),
            ("/healthz/*", "/healthz/", true),
            ("/healthz/*", "/healthz", false),
            ("/healthz*", "/healthz", true),
            ("/healthz**", "/healthzzz", true),
            ("/health*z", "/healthz", false),
            ("*", "/anything", true),
            ("**", "/anything", true),
            ("/a*", "/b", false),
            ("", "/a", false),
            ("/metrics/slis", "/metrics/slis", true),
            ("/metrics/slis", "/metrics/other", false),
            ("/metrics", "/metrics/slis", false),
        ];
        for (own, asked, expected) in cases {
            let rule = Rule { verbs: texts("get"), non_resource_urls: vec![own.into()], ..Rule::default() };
            let attributes = Attributes::NonResource { verb: "get", path: asked.into() };
            assert_eq!(allows(&rule, &attributes), expected, "{own} {asked}");
            let post = Attributes::NonResource { verb: "post", path: asked.into() };
            assert!(!allows(&rule, &post), "{own} {asked}");
        }
        // Neither half of a rule grants the other's requests.
        let all_resources = rule("*", "*", "*", "");
        assert!(!allows(&all_resources, &Attributes::NonResource { verb: "get", path: "/healthz".into() }));
        let all_paths = Rule { verbs: texts("*"), non_resource_urls: texts("*"), ..Rule::default() };
        let pods = ResourceAttributes { verb: "get", resource: "pods", ..ResourceAttributes::default() };
        assert!(!allows(&all_paths, &Attributes::Resource(pods)));
    }
}
