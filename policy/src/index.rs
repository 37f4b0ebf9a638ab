//! An index of policy rules. With the index, the first matching rule is found without a comparison with every rule.
//!
//! For each field and each text in the field, the index has the set of rules that accept the text. The set has one bit
//! per rule. The attributes of a request select one set per field. The first bit in the intersection of the sets is the
//! first matching rule. These are the bit vectors of Lakshman and Stiliadis (SIGCOMM 1998), stored sparsely: a text has
//! bits only in those blocks of 64 rules that contain the text.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::attributes::{DispatchAttributes, DispatchTarget};
use crate::entries::FieldEntries;
use crate::names::{Name, is_spelling};
use crate::pattern::{ResourcePattern, ServiceAccountPattern, TextPattern, Word};
use crate::policy::Mode;
use crate::rule::Matcher;

const BLOCK: usize = u64::BITS as usize;

/// The sets of rules that a request's values select in one field. The capacity suffices without an allocation, unless
/// entries name more than 16 groups of the user.
type Hits<'a> = SmallVec<[&'a Mentions; 16]>;

#[derive(Clone, Debug, Default)]
pub(crate) struct RuleIndex {
    /// One bit per rule, which is set if the rule's policy is enforced.
    enforced: Vec<u64>,
    /// One bit per rule, which is set if the rule's policy denies requests.
    denying: Vec<u64>,
    verbs: Texts,
    users: Texts,
    service_accounts: Texts,
    user_groups: Texts,
    user_agents: Texts,
    api_groups: Texts,
    resources: Resources,
    resource_names: Texts,
    namespaces: Texts,
    non_resource_urls: Texts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstRules {
    pub(crate) enforced: Option<usize>,
    /// First matching rule of a policy in audit mode, if this rule comes before the first matching enforced rule.
    pub(crate) audited: Option<usize>,
}

impl RuleIndex {
    /// Builds the index of these rules, in their order. The mode is that of the rule's policy, and the flag is true if
    /// the policy denies requests.
    pub(crate) fn new(rules: &[(Matcher, Mode, bool)]) -> Self {
        let mut index = Self::default();
        for (number, (rule, mode, denies)) in rules.iter().enumerate() {
            let rule_bit = Bit::for_rule(number);
            for (bits, is_one) in [(&mut index.enforced, *mode == Mode::Enforce), (&mut index.denying, *denies)] {
                bits.resize(rule_bit.block + 1, 0);
                if is_one {
                    bits[rule_bit.block] |= rule_bit.mask;
                }
            }
            index.verbs.add(&rule.verbs, rule_bit, |Word(word)| (word, TextKind::Whole));
            index.users.add(&rule.users, rule_bit, text_kind);
            index.service_accounts.add(&rule.service_accounts, rule_bit, |ServiceAccountPattern(text)| text_kind(text));
            index.user_groups.add(&rule.user_groups, rule_bit, text_kind);
            index.user_agents.add(&rule.user_agents, rule_bit, text_kind);
            index.api_groups.add(&rule.api_groups, rule_bit, |Word(word)| (word, TextKind::Whole));
            index.resources.add(&rule.resources, rule_bit);
            index.resource_names.add(&rule.resource_names, rule_bit, text_kind);
            index.namespaces.add(&rule.namespaces, rule_bit, text_kind);
            index.non_resource_urls.add(&rule.non_resource_urls, rule_bit, text_kind);
        }
        index
    }

    pub(crate) fn first(&self, attributes: &DispatchAttributes<'_>) -> FirstRules {
        let verb = self.verbs.match_values([attributes.verb]);
        let user = self.users.match_values([attributes.user]);
        let account = attributes.service_account().map(|account| self.service_accounts.match_values([account]));
        let groups = self.user_groups.match_values(attributes.groups.iter().map(String::as_str));
        let agent = self.user_agents.match_values([attributes.user_agent]);
        let (target, name) = match &attributes.target {
            DispatchTarget::Resource(resource) => {
                let target = [
                    self.api_groups.match_values([resource.group]),
                    self.resources.match_resource(resource.resource, resource.subresource),
                    self.namespaces.match_values([resource.namespace]),
                ];
                (SmallVec::<[FieldMatches<'_>; 3]>::from(target), Some(self.match_name(Name::from_resource(resource))))
            }
            DispatchTarget::NonResource(path) => {
                (SmallVec::from_iter([self.non_resource_urls.match_values([&**path])]), None)
            }
        };
        let matching = |block: usize| {
            let subject = user.block(block) | account.as_ref().map_or(0, |account| account.block(block));
            // After a few fields, no rule is left in most blocks. Groups are compared last, because a user has many
            // groups.
            let rest = [&verb, &agent].into_iter().chain(&target).chain([&groups]);
            let matches =
                rest.fold(subject, |matches, field| if matches == 0 { 0 } else { matches & field.block(block) });
            if matches == 0 { 0 } else { name.as_ref().map_or(matches, |name| matches & name.block(block)) }
        };
        let mut first = FirstRules::default();
        for (block, enforced) in self.enforced.iter().enumerate() {
            let matches = matching(block);
            let (enforced_matches, audited) = (matches & enforced, matches & !enforced);
            // A mask of all rules before the first enforced rule that matches. If no enforced rule matches, the mask
            // has all bits.
            let before = (enforced_matches & enforced_matches.wrapping_neg()).wrapping_sub(1);
            first.audited = first.audited.or(lowest(audited & before, block));
            first.enforced = lowest(enforced_matches, block);
            if first.enforced.is_some() {
                break;
            }
        }
        first
    }

    /// Returns the rules whose `resourceNames` match the object's name, with all its spellings.
    fn match_name(&self, name: Name<'_>) -> NameMatches<'_> {
        let Some(own) = name.own else {
            return NameMatches { wide: self.resource_names.match_values([name.written]), narrow: None };
        };
        let wide = self.resource_names.match_values([name.written, own]);
        // An entry with a colon is compared with the name in the path. A prefix without a colon must also match the
        // object's own name.
        let mut narrow = self.resource_names.match_values([]);
        let is_match = |text: &str| is_spelling(text) || own.starts_with(text);
        narrow.hits.extend(self.resource_names.hits(name.written, is_match));
        NameMatches { wide, narrow: Some((narrow, &self.denying[..])) }
    }
}

fn lowest(bits: u64, block: usize) -> Option<usize> {
    (bits != 0).then(|| block * BLOCK + bits.trailing_zeros() as usize)
}

#[derive(Clone, Copy, Debug)]
struct Bit {
    block: usize,
    mask: u64,
}

impl Bit {
    fn for_rule(rule: usize) -> Self {
        Self { block: rule / BLOCK, mask: 1 << (rule % BLOCK) }
    }
}

/// The rules with an entry for one text, and the rules with an inverted entry for this text.
#[derive(Clone, Debug, Default)]
struct Mentions {
    /// Blocks of 64 rules that contain the text, sorted by block number.
    blocks: Vec<MentionedIn>,
}

#[derive(Clone, Copy, Debug, Default)]
struct MentionedIn {
    block: usize,
    only: u64,
    but: u64,
}

impl Mentions {
    fn add(&mut self, rule: Bit, mention: Mention) {
        // Rules are added in their order, so the rule belongs to the last block or to a new block.
        if self.blocks.last().is_none_or(|last| last.block != rule.block) {
            self.blocks.push(MentionedIn { block: rule.block, ..MentionedIn::default() });
        }
        if let Some(last) = self.blocks.last_mut() {
            match mention {
                Mention::Only => last.only |= rule.mask,
                Mention::But => last.but |= rule.mask,
            }
        }
    }

    fn in_block(&self, block: usize) -> MentionedIn {
        let found = self.blocks.binary_search_by_key(&block, |mentioned| mentioned.block);
        found.map_or(MentionedIn::default(), |at| self.blocks[at])
    }
}

/// Kind of an entry: ordinary or inverted (`-x`).
#[derive(Clone, Copy, Debug)]
enum Mention {
    Only,
    But,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextKind {
    Whole,
    Prefix,
}

fn text_kind(text: &TextPattern) -> (&str, TextKind) {
    match text {
        TextPattern::Exact(text) => (text, TextKind::Whole),
        TextPattern::Prefix(prefix) => (prefix, TextKind::Prefix),
    }
}

/// Returns the entries of a field, and whether the field accepts a text that no entry matches.
fn mentions<P>(entries: &FieldEntries<P>) -> (bool, impl Iterator<Item = (&P, Mention)>) {
    let (by_default, entries, mention) = match entries {
        FieldEntries::Any(_) => (true, &[][..], Mention::Only),
        FieldEntries::Only(entries) => (false, &entries[..], Mention::Only),
        FieldEntries::AllBut(entries) => (true, &entries[..], Mention::But),
    };
    (by_default, entries.iter().map(move |entry| (&entry.pattern, mention)))
}

/// One bit per rule, which is set if the rule's field accepts a text that no entry matches.
#[derive(Clone, Debug, Default)]
struct DefaultMatches(Vec<u64>);

impl DefaultMatches {
    fn add(&mut self, rule: Bit, accepts: bool) {
        self.0.resize(rule.block + 1, 0);
        if accepts {
            self.0[rule.block] |= rule.mask;
        }
    }
}

/// Index of a field with texts, for example `verbs`.
#[derive(Clone, Debug, Default)]
struct Texts {
    by_default: DefaultMatches,
    whole: HashMap<Box<str>, Mentions>,
    prefixes: HashMap<Box<str>, Mentions>,
    /// Distinct lengths of the prefixes, sorted.
    lengths: Vec<usize>,
}

impl Texts {
    fn add<P>(&mut self, entries: &FieldEntries<P>, rule: Bit, text_of: impl Fn(&P) -> (&str, TextKind)) {
        let (accepts, mentioned) = mentions(entries);
        self.by_default.add(rule, accepts);
        for (pattern, mention) in mentioned {
            let (text, text_kind) = text_of(pattern);
            let texts = match text_kind {
                TextKind::Whole => &mut self.whole,
                TextKind::Prefix => {
                    if let Err(at) = self.lengths.binary_search(&text.len()) {
                        self.lengths.insert(at, text.len());
                    }
                    &mut self.prefixes
                }
            };
            texts.entry(text.into()).or_default().add(rule, mention);
        }
    }

    /// Returns the rules that match any of these values.
    fn match_values<'a, 'b>(&'a self, values: impl IntoIterator<Item = &'b str>) -> FieldMatches<'a> {
        let mut hits = Hits::new();
        for value in values {
            hits.extend(self.hits(value, |_| true));
        }
        FieldMatches { by_default: &self.by_default, hits }
    }

    /// Returns the sets of rules for the entries that match a value as a whole or as a prefix. Ignores an entry if
    /// `is_match` returns false for its text.
    fn hits<'a, F: Fn(&str) -> bool>(&'a self, value: &str, is_match: F) -> impl Iterator<Item = &'a Mentions> {
        let whole = Some(value).filter(|value| is_match(value)).and_then(|value| self.whole.get(value));
        let lengths = self.lengths.iter().take_while(move |length| **length <= value.len());
        let prefixes = lengths.filter_map(move |length| value.get(..*length));
        let prefixes = prefixes.filter(move |beginning| is_match(beginning));
        whole.into_iter().chain(prefixes.filter_map(move |beginning| self.prefixes.get(beginning)))
    }
}

/// Index of the field `resources`, with subresources.
#[derive(Clone, Debug, Default)]
struct Resources {
    by_default: DefaultMatches,
    /// Entries by resource, then by subresource.
    named: HashMap<Box<str>, HashMap<Box<str>, Mentions>>,
    /// Entries for all resources (`*/status`), by subresource.
    any_resource: HashMap<Box<str>, Mentions>,
}

impl Resources {
    fn add(&mut self, entries: &FieldEntries<ResourcePattern>, rule: Bit) {
        let (accepts, mentioned) = mentions(entries);
        self.by_default.add(rule, accepts);
        for (pattern, mention) in mentioned {
            let subresources = match &pattern.resource {
                Some(resource) => self.named.entry(resource.clone()).or_default(),
                None => &mut self.any_resource,
            };
            subresources.entry(pattern.subresource.clone()).or_default().add(rule, mention);
        }
    }

    fn match_resource(&self, resource: &str, subresource: &str) -> FieldMatches<'_> {
        let named = self.named.get(resource).and_then(|subresources| subresources.get(subresource));
        let hits = named.into_iter().chain(self.any_resource.get(subresource)).collect();
        FieldMatches { by_default: &self.by_default, hits }
    }
}

/// The rules whose entries in one field match a request.
struct FieldMatches<'a> {
    by_default: &'a DefaultMatches,
    hits: Hits<'a>,
}

impl FieldMatches<'_> {
    /// Returns those rules of a block whose field accepts the request.
    fn block(&self, block: usize) -> u64 {
        let MentionedIn { only, but, .. } = self.in_block(block);
        (self.by_default.0[block] | only) & !but
    }

    /// Returns those rules of a block whose field has an entry that matches the request.
    fn in_block(&self, block: usize) -> MentionedIn {
        let mut all = MentionedIn { block, ..MentionedIn::default() };
        for hit in &self.hits {
            let mentioned = hit.in_block(block);
            all.only |= mentioned.only;
            all.but |= mentioned.but;
        }
        all
    }
}

/// The rules that match the name of an object. The name may have several spellings.
struct NameMatches<'a> {
    /// Rules with an entry that matches at least one spelling of the name.
    wide: FieldMatches<'a>,
    /// For a name with several spellings: the rules with an entry that matches all spellings, and one bit per rule,
    /// which is set if the rule's policy denies requests.
    narrow: Option<(FieldMatches<'a>, &'a [u64])>,
}

impl NameMatches<'_> {
    /// Returns those rules of a block that accept the name.
    fn block(&self, block: usize) -> u64 {
        let Some((narrow, denying)) = &self.narrow else { return self.wide.block(block) };
        let (wide, narrow, denying) = (self.wide.in_block(block), narrow.in_block(block), denying[block]);
        let accepting = |only: u64, but: u64| (self.wide.by_default.0[block] | only) & !but;
        (accepting(wide.only, narrow.but) & denying) | (accepting(narrow.only, wide.but) & !denying)
    }
}
