//! Evaluates one rule of a role exactly as `pkg/apis/rbac/v1/evaluation_helpers.go` of Kubernetes 1.36.

use std::fmt;

use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tributary_apimachinery::json::null_is_default;

use crate::attributes::{Attributes, ResourceAttributes};

/// The wildcard for all verbs, groups, resources or paths.
const ALL: &str = "*";

/// A PolicyRule with a filter that quickly excludes requests. A cluster decides the number of rules and strings, so a
/// rule has a fixed number of allocations, whatever the number of its strings.
#[derive(Clone, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(from = "WireRule")]
pub struct CompiledRule {
    bloom_filter: BloomFilter,
    /// The strings of all lists of the rule, concatenated.
    text: Box<str>,
    /// The end of each string in `text`, in bytes.
    ends: Box<[u32]>,
    /// For each list of the rule, the index in `ends` behind the last string of the list.
    lists: [u32; LISTS],
}

/// The number of lists in a rule: verbs, API groups, resources, resource names, non-resource URLs.
const LISTS: usize = 5;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireRule {
    #[serde(deserialize_with = "null_is_default")]
    verbs: WireWords,
    #[serde(deserialize_with = "null_is_default")]
    api_groups: WireWords,
    #[serde(deserialize_with = "null_is_default")]
    resources: WireWords,
    #[serde(deserialize_with = "null_is_default")]
    resource_names: WireWords,
    /// Go's type names this field `NonResourceURLs`, and the JSON name is `nonResourceURLs`.
    #[serde(rename = "nonResourceURLs", deserialize_with = "null_is_default")]
    non_resource_urls: WireWords,
}

#[derive(Default)]
struct WireWords {
    text: String,
    ends: Vec<u32>,
}

impl WireWords {
    fn push(&mut self, word: &str) {
        self.text.push_str(word);
        self.ends.push(end_of(&self.text));
    }
}

impl<'a> FromIterator<&'a str> for WireWords {
    fn from_iter<I: IntoIterator<Item = &'a str>>(words: I) -> Self {
        let mut own = Self::default();
        words.into_iter().for_each(|word| own.push(word));
        own
    }
}

/// Returns the length of a text. The conversion cannot fail, because no object has 4 GiB.
fn end_of(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

impl<'de> Deserialize<'de> for WireWords {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor;
        struct WordSeed<'a>(&'a mut WireWords);

        impl<'de> DeserializeSeed<'de> for WordSeed<'_> {
            type Value = ();

            fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
                deserializer.deserialize_str(self)
            }
        }

        impl Visitor<'_> for WordSeed<'_> {
            type Value = ();

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, word: &str) -> Result<(), E> {
                self.0.push(word);
                Ok(())
            }
        }

        impl<'de> Visitor<'de> for ListVisitor {
            type Value = WireWords;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of strings")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<WireWords, A::Error> {
                let mut words = WireWords::default();
                while list.next_element_seed(WordSeed(&mut words))?.is_some() {}
                Ok(words)
            }
        }

        deserializer.deserialize_seq(ListVisitor)
    }
}

impl From<WireRule> for CompiledRule {
    fn from(WireRule { verbs, api_groups, resources, resource_names, non_resource_urls }: WireRule) -> Self {
        Self::from_lists([verbs, api_groups, resources, resource_names, non_resource_urls])
    }
}

/// Deserializes the rules of a role. Rules that allow nothing are dropped.
pub(crate) fn rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<CompiledRule>, D::Error> {
    struct RulesVisitor;

    impl<'de> Visitor<'de> for RulesVisitor {
        type Value = Vec<CompiledRule>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of rules")
        }

        fn visit_unit<E>(self) -> Result<Vec<CompiledRule>, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<CompiledRule>, A::Error> {
            let mut rules = Vec::new();
            while let Some(rule) = list.next_element::<CompiledRule>()? {
                if rule.allows_something() {
                    rules.push(rule);
                }
            }
            Ok(rules)
        }
    }

    deserializer.deserialize_any(RulesVisitor)
}

impl fmt::Debug for CompiledRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..LISTS).map(|list| self.list(list).collect::<Vec<_>>())).finish()
    }
}

impl CompiledRule {
    fn from_lists(lists: [WireWords; LISTS]) -> Self {
        let bytes = lists.iter().map(|words| words.text.len()).sum();
        let (mut text, mut count) = (String::with_capacity(bytes), 0);
        let mut ends = Vec::with_capacity(lists.iter().map(|words| words.ends.len()).sum());
        let lists = lists.map(|words| {
            let before = end_of(&text);
            text.push_str(&words.text);
            ends.extend(words.ends.iter().map(|end| before.saturating_add(*end)));
            count += words.ends.len();
            u32::try_from(count).unwrap_or(u32::MAX)
        });
        let rule = Self { bloom_filter: BloomFilter::default(), text: text.into(), ends: ends.into(), lists };
        Self { bloom_filter: BloomFilter::from_rule(&rule), ..rule }
    }

    fn list(&self, list: usize) -> impl ExactSizeIterator<Item = &str> + Clone {
        let from = list.checked_sub(1).map_or(0, |before| self.lists[before]) as usize;
        (from..self.lists[list] as usize).map(|word| {
            let begin = word.checked_sub(1).map_or(0, |before| self.ends[before]) as usize;
            &self.text[begin..self.ends[word] as usize]
        })
    }

    /// The verbs; `*` matches all verbs.
    pub fn verbs(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.list(0)
    }

    /// The API groups; `*` matches all groups.
    pub fn api_groups(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.list(1)
    }

    /// The resources, for example `pods`, `pods/log`, `*/scale`; `*` matches all resources.
    pub fn resources(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.list(2)
    }

    /// The object names that the rule is limited to; an empty list means no limit.
    pub fn resource_names(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.list(3)
    }

    /// The paths. A `*` at the end matches every path with that prefix.
    pub fn non_resource_urls(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.list(4)
    }

    /// Returns whether the rule allows any request.
    pub(crate) fn allows_something(&self) -> bool {
        self.verbs().len() > 0
            && (self.non_resource_urls().len() > 0 || (self.api_groups().len() > 0 && self.resources().len() > 0))
    }

    /// Splits the rule into a rule for resources and a rule for paths. A SelfSubjectRulesReview lists the two
    /// separately (`RBACAuthorizer.RulesFor`).
    pub(crate) fn split_by_target(&self) -> impl Iterator<Item = Self> {
        let (none, words) = (WireWords::default, |list| self.list(list).collect());
        let resources = || Self::from_lists([words(0), words(1), words(2), words(3), none()]);
        let paths = || Self::from_lists([words(0), none(), none(), none(), words(4)]);
        let resources = (self.resources().len() > 0).then(resources);
        resources.into_iter().chain((self.non_resource_urls().len() > 0).then(paths))
    }

    /// Returns whether the rule allows the request (`RuleAllows`). The binding decides in which namespaces the rule
    /// applies.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        match attributes {
            Attributes::Resource(attributes) => self.covers(attributes) && self.names(attributes.name),
            Attributes::NonResource { verb, path } => self.has_verb(verb) && self.has_path(path),
        }
    }

    /// Returns whether the verb, group, resource and subresource match. The name is not compared.
    pub(crate) fn covers(&self, attributes: &ResourceAttributes<'_>) -> bool {
        self.has_verb(attributes.verb)
            && has(self.api_groups(), attributes.group)
            && self.resources().any(|resource| resource_matches(resource, attributes))
    }

    /// Returns whether the rule's resource names include this name. An empty name means a request without a name.
    fn names(&self, name: &str) -> bool {
        self.resource_names().len() == 0 || self.resource_names().any(|own| own == name)
    }

    fn words(&self) -> usize {
        self.ends.len()
    }

    fn has_verb(&self, verb: &str) -> bool {
        has(self.verbs(), verb)
    }

    fn has_path(&self, path: &str) -> bool {
        let matches = |own: &str| {
            own == ALL || own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
        };
        self.non_resource_urls().any(matches)
    }
}

fn has<'a>(mut own: impl Iterator<Item = &'a str>, value: &str) -> bool {
    own.any(|own| own == ALL || own == value)
}

fn resource_matches(own: &str, attributes: &ResourceAttributes<'_>) -> bool {
    if own == ALL {
        return true;
    }
    if attributes.subresource.is_empty() {
        return own == attributes.resource;
    }
    let below = |resource: &str| {
        own.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')) == Some(attributes.subresource)
    };
    below(attributes.resource) || below(ALL)
}

/// The rules of a role, with a common filter for all of them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    rules: Box<[CompiledRule]>,
    bloom_filter: BloomFilter,
    /// The number of strings in all rules, plus one per rule.
    words: usize,
    names: usize,
}

/// A filter for rules. The hash of each verb, and of each resource or path, sets one of 64 bits; a wildcard sets all
/// bits. A request whose bits are not set cannot match the rule, so most rules are skipped without comparing strings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct BloomFilter {
    verbs: u64,
    targets: u64,
}

impl BloomFilter {
    fn from_rule(rule: &CompiledRule) -> Self {
        fn bits<'a>(texts: impl Iterator<Item = &'a str>, part: fn(&str) -> &str) -> u64 {
            let bits_of = |text: &str| if text.contains('*') { u64::MAX } else { bit_of(part(text)) };
            texts.fold(0, |bits, text| bits | bits_of(text))
        }
        let targets = bits(rule.resources(), without_subresource) | bits(rule.non_resource_urls(), whole);
        Self { verbs: bits(rule.verbs(), whole), targets }
    }

    pub(crate) fn from_request(attributes: &Attributes<'_>) -> Self {
        match attributes {
            Attributes::Resource(attributes) => {
                Self { verbs: bit_of(attributes.verb), targets: bit_of(without_subresource(attributes.resource)) }
            }
            Attributes::NonResource { verb, path } => Self { verbs: bit_of(verb), targets: bit_of(path) },
        }
    }

    fn may_match(self, request: Self) -> bool {
        self.verbs & request.verbs != 0 && self.targets & request.targets != 0
    }
}

fn whole(text: &str) -> &str {
    text
}

fn without_subresource(resource: &str) -> &str {
    resource.split_once('/').map_or(resource, |(resource, _)| resource)
}

/// Returns the bit for a text by the hash FNV-1a, which is fast for short texts. A cluster that provokes collisions
/// slows down only the evaluation of its own rules.
fn bit_of(text: &str) -> u64 {
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    // The lowest bits of a product depend on only a few bits of its factors, so the function uses the upper bits of the
    // hash.
    1 << (hash >> 58)
}

impl Rules {
    pub(crate) fn new(rules: Vec<CompiledRule>) -> Self {
        let join = |all: BloomFilter, CompiledRule { bloom_filter, .. }: &CompiledRule| BloomFilter {
            verbs: all.verbs | bloom_filter.verbs,
            targets: all.targets | bloom_filter.targets,
        };
        let bloom_filter = rules.iter().fold(BloomFilter::default(), join);
        let words = rules.iter().map(|rule| 1 + rule.words()).sum();
        let names = rules.iter().map(|rule| rule.resource_names().len()).sum();
        Self { rules: rules.into(), bloom_filter, words, names }
    }

    /// The number of strings in all rules, plus one per rule: a measure of the cost of an evaluation.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    pub(crate) fn names(&self) -> usize {
        self.names
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &CompiledRule> {
        self.rules.iter()
    }

    pub(crate) fn get(&self, index: usize) -> Option<&CompiledRule> {
        self.rules.get(index)
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether a rule may match a request. `request_filter` contains the bits of the request.
    pub(crate) fn may_match(&self, request_filter: BloomFilter) -> bool {
        self.bloom_filter.may_match(request_filter)
    }

    pub(crate) fn candidates(&self, request_filter: BloomFilter) -> impl Iterator<Item = &CompiledRule> {
        let rules: &[_] = if self.may_match(request_filter) { &self.rules } else { &[] };
        rules.iter().filter(move |rule| rule.bloom_filter.may_match(request_filter))
    }

    pub(crate) fn allow(&self, attributes: &Attributes<'_>, request_filter: BloomFilter) -> bool {
        self.candidates(request_filter).any(|rule| rule.allows(attributes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> WireWords {
        // The test notation `''` means the empty string: the core group, or no name.
        text.split_whitespace().map(|word| if word == "''" { "" } else { word }).collect()
    }

    fn rule(verbs: &str, groups: &str, resources: &str, names: &str) -> CompiledRule {
        CompiledRule::from_lists([verbs, groups, resources, names, ""].map(words))
    }

    fn paths(verbs: &str, paths: WireWords) -> CompiledRule {
        CompiledRule::from_lists([
            words(verbs),
            WireWords::default(),
            WireWords::default(),
            WireWords::default(),
            paths,
        ])
    }

    /// Evaluates the rule alone and as the only rule of a role, and checks that the results are equal.
    fn allows(rule: &CompiledRule, attributes: &Attributes<'_>) -> bool {
        let alone = rule.allows(attributes);
        let role = Rules::new(vec![CompiledRule::default(), rule.clone()]);
        assert_eq!(role.allow(attributes, BloomFilter::from_request(attributes)), alone, "{rule:?} {attributes:?}");
        alone
    }

    /// Each case has a rule, a request as `verb group resource/subresource name`, and whether the rule allows the
    /// request.
    #[test]
    fn rule_matches_verb_group_resource_and_name() {
        let cases = [
            (rule("get", "''", "pods", ""), ["get", "", "pods", "", "p"], true),
            (rule("get", "''", "pods", ""), ["list", "", "pods", "", ""], false),
            (rule("get", "''", "pods", ""), ["get", "apps", "pods", "", "p"], false),
            (rule("get", "''", "pods", ""), ["get", "", "pods", "log", "p"], false),
            (rule("get", "''", "pods/log", ""), ["get", "", "pods", "log", "p"], true),
            (rule("get", "''", "pods/log", ""), ["get", "", "pods", "", "p"], false),
            // A SubjectAccessReview may contain `pods/log` as the resource, without a subresource. It matches the same
            // rules, because the compared text is `pods/log`, too.
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
            // Only the whole string `*` is a wildcard. A `*` in a request has no special meaning.
            (rule("get*", "''", "pods", ""), ["get", "", "pods", "", "p"], false),
            (rule("get", "''", "po*", ""), ["get", "", "pods", "", "p"], false),
            (rule("get", "''", "pods", ""), ["*", "", "pods", "", "p"], false),
            (rule("get", "''", "pods", ""), ["get", "", "*", "", "p"], false),
            // A request without a name (create, or a list) matches no rule with resource names.
            (rule("*", "''", "pods", "p q"), ["get", "", "pods", "", "q"], true),
            (rule("*", "''", "pods", "p q"), ["get", "", "pods", "", "r"], false),
            (rule("*", "''", "pods", "p q"), ["create", "", "pods", "", ""], false),
            (rule("*", "''", "pods", "p q"), ["list", "", "pods", "", ""], false),
            (rule("*", "''", "pods", "p q"), ["watch", "", "pods", "", "q"], true),
            (rule("*", "''", "pods", "p q"), ["deletecollection", "", "pods", "", ""], false),
            // A rule with an empty resource name matches a request without a name.
            (rule("*", "''", "pods", "''"), ["list", "", "pods", "", ""], true),
            (rule("*", "''", "pods", "''"), ["get", "", "pods", "", "p"], false),
            // `*` is no wildcard among resource names.
            (rule("*", "''", "pods", "*"), ["get", "", "pods", "", "p"], false),
        ];
        for (rule, [verb, group, resource, subresource, name], expected) in cases {
            let request =
                ResourceAttributes { verb, group, version: "v1", resource, subresource, namespace: "n", name };
            assert_eq!(allows(&rule, &Attributes::Resource(request)), expected, "{rule:?} {request:?}");
        }
    }

    #[test]
    fn non_resource_rule_matches_whole_paths_and_prefixes() {
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
        for (own, path, expected) in cases {
            let rule = paths("get", [own].into_iter().collect());
            let attributes = Attributes::NonResource { verb: "get", path: path.into() };
            assert_eq!(allows(&rule, &attributes), expected, "{own} {path}");
            let post = Attributes::NonResource { verb: "post", path: path.into() };
            assert!(!allows(&rule, &post), "{own} {path}");
        }
        // The resource part of a rule does not grant paths, and the path part does not grant resources.
        let all_resources = rule("*", "*", "*", "");
        assert!(!allows(&all_resources, &Attributes::NonResource { verb: "get", path: "/healthz".into() }));
        let all_paths = paths("*", words("*"));
        let pods = ResourceAttributes { verb: "get", resource: "pods", ..ResourceAttributes::default() };
        assert!(!allows(&all_paths, &Attributes::Resource(pods)));
    }

    #[test]
    fn rbac_rule_parsed_from_json_contains_all_strings_of_the_json() {
        let text = r#"{"resources":["pods","a/b"],"verbs":["get","\u0000","\u00e4"],"nonResourceURLs":null,"apiGroups":[""],
            "resourceNames":[],"unknown":[{}]}"#;
        let read: CompiledRule = serde_json::from_str(text).unwrap();
        let lists = [read.verbs().collect::<Vec<_>>(), read.api_groups().collect(), read.resources().collect()];
        assert_eq!(lists, [vec!["get", "\0", "ä"], vec![""], vec!["pods", "a/b"]]);
        assert_eq!((read.resource_names().len(), read.non_resource_urls().len()), (0, 0));
        assert_ne!(rule("ab", "''", "c", ""), rule("a b", "''", "c", ""));
        for bad in [r#"{"verbs":[null]}"#, r#"{"verbs":"get"}"#, r#"{"verbs":[1]}"#, r#"{"verbs":[],"verbs":[]}"#, "7"]
        {
            assert!(serde_json::from_str::<CompiledRule>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rules_that_can_allow_nothing_are_dropped() {
        #[derive(Deserialize)]
        struct Role {
            #[serde(deserialize_with = "super::rules")]
            rules: Vec<CompiledRule>,
        }
        let read = |text: &str| serde_json::from_str::<Role>(&format!(r#"{{"rules":{text}}}"#)).map(|role| role.rules);
        for (text, count) in [
            ("null", 0),
            ("[]", 0),
            (r#"[{},{"verbs":["get"]},{"verbs":["get"],"resources":["pods"]},{"nonResourceURLs":["*"]}]"#, 0),
            (
                r#"[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]},{"verbs":["get"],"nonResourceURLs":["/"]}]"#,
                2,
            ),
        ] {
            assert_eq!(read(text).unwrap().len(), count, "{text}");
        }
        assert!(read("{}").is_err() && read("7").is_err() && read("[7]").is_err());
    }
}
