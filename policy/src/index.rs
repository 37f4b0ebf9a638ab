//! Finds the first rule that matches without asking each.
//!
//! For each field, and each text that rules name in it, it is known which rules accept a request with that text: one
//! bit for each rule. A request's own texts give one such set for each field; the first bit that is in all of them is
//! the first rule that matches (the bit vectors of Lakshman and Stiliadis, SIGCOMM 1998, kept sparse: a text has bits
//! only in those blocks of 64 rules that name it).

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::attributes::{DispatchAttributes, DispatchTarget};
use crate::entries::FieldEntries;
use crate::names::{Name, is_of_spelling};
use crate::pattern::{ResourcePattern, ServiceAccountPattern, TextPattern, Word};
use crate::policy::Mode;
use crate::rule::Matcher;

/// How many rules a block has.
const BLOCK: usize = u64::BITS as usize;

/// What a request's texts are named by, in one field. A user in more groups that are named has them on the heap.
type Hits<'a> = SmallVec<[&'a Mentions; 16]>;

/// The rules, by what they name.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleIndex {
    /// The rules of policies that act.
    enforced: Vec<u64>,
    /// Those of policies that deny.
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

/// The first rules that match, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FirstRules {
    /// Of the policies that act.
    pub(crate) enforced: Option<usize>,
    /// Of those that are only told, if it stands before.
    pub(crate) audited: Option<usize>,
}

impl RuleIndex {
    /// Of rules in their order, with the mode of their policy, and whether it denies.
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
            index.verbs.add(&rule.verbs, rule_bit, |Word(word)| (word, Extent::Whole));
            index.users.add(&rule.users, rule_bit, extent);
            index.service_accounts.add(&rule.service_accounts, rule_bit, |ServiceAccountPattern(text)| extent(text));
            index.user_groups.add(&rule.user_groups, rule_bit, extent);
            index.user_agents.add(&rule.user_agents, rule_bit, extent);
            index.api_groups.add(&rule.api_groups, rule_bit, |Word(word)| (word, Extent::Whole));
            index.resources.add(&rule.resources, rule_bit);
            index.resource_names.add(&rule.resource_names, rule_bit, extent);
            index.namespaces.add(&rule.namespaces, rule_bit, extent);
            index.non_resource_urls.add(&rule.non_resource_urls, rule_bit, extent);
        }
        index
    }

    /// The first rules that match a request.
    pub(crate) fn first(&self, asked: &DispatchAttributes<'_>) -> FirstRules {
        let verb = self.verbs.match_values([asked.verb]);
        let user = self.users.match_values([asked.user]);
        let account = asked.service_account().map(|account| self.service_accounts.match_values([account]));
        let groups = self.user_groups.match_values(asked.groups.iter().map(String::as_str));
        let agent = self.user_agents.match_values([asked.user_agent]);
        let (target, name) = match &asked.target {
            DispatchTarget::Resource(resource) => {
                let target = [
                    self.api_groups.match_values([resource.group]),
                    self.resources.match_resource(resource.resource, resource.subresource),
                    self.namespaces.match_values([resource.namespace]),
                ];
                (SmallVec::<[FieldMatches<'_>; 3]>::from(target), Some(self.asked_name(Name::from_resource(resource))))
            }
            DispatchTarget::NonResource(path) => {
                (SmallVec::from_iter([self.non_resource_urls.match_values([&**path])]), None)
            }
        };
        let matching = |block: usize| {
            let subject = user.block(block) | account.as_ref().map_or(0, |account| account.block(block));
            // Most blocks have no rule left after a few fields; groups are many.
            let rest = [&verb, &agent].into_iter().chain(&target).chain([&groups]);
            let left = rest.fold(subject, |left, field| if left == 0 { 0 } else { left & field.block(block) });
            if left == 0 { 0 } else { name.as_ref().map_or(left, |name| left & name.block(block)) }
        };
        let mut first = FirstRules::default();
        for (block, enforced) in self.enforced.iter().enumerate() {
            let left = matching(block);
            let (acting, told) = (left & enforced, left & !enforced);
            // Those before the first one that acts; all of them where none does.
            let before = (acting & acting.wrapping_neg()).wrapping_sub(1);
            first.audited = first.audited.or(lowest(told & before, block));
            first.enforced = lowest(acting, block);
            if first.enforced.is_some() {
                break;
            }
        }
        first
    }

    /// What rules say of a request with this name.
    fn asked_name(&self, name: Name<'_>) -> AskedName<'_> {
        let Some(own) = name.own else {
            return AskedName { wide: self.resource_names.match_values([name.written]), narrow: None };
        };
        let wide = self.resource_names.match_values([name.written, own]);
        // What is written whole has a colon; of beginnings the object's own name has to have them, too.
        let mut narrow = self.resource_names.match_values([]);
        let is_meant = |text: &str| is_of_spelling(text) || own.starts_with(text);
        narrow.hits.extend(self.resource_names.hits(name.written, is_meant));
        AskedName { wide, narrow: Some((narrow, &self.denying[..])) }
    }
}

/// The number of the lowest bit's rule.
fn lowest(bits: u64, block: usize) -> Option<usize> {
    (bits != 0).then(|| block * BLOCK + bits.trailing_zeros() as usize)
}

/// One rule's bit.
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

/// Which rules name a text: those that then accept it, and those that then do not.
#[derive(Clone, Debug, Default)]
struct Mentions {
    /// Ascending by block.
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
        // Rules come in their order, so theirs is the last block.
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

/// How a rule names a text.
#[derive(Clone, Copy, Debug)]
enum Mention {
    /// As one that it accepts.
    Only,
    /// As one that it does not accept.
    But,
}

/// How much of a text an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    Beginning,
}

fn extent(text: &TextPattern) -> (&str, Extent) {
    match text {
        TextPattern::Exact(text) => (text, Extent::Whole),
        TextPattern::Prefix(prefix) => (prefix, Extent::Beginning),
    }
}

/// A field's entries: what names it, and what the rules do that accept all but what they name.
fn mentions<P>(entries: &FieldEntries<P>) -> (bool, impl Iterator<Item = (&P, Mention)>) {
    let (by_default, entries, mention) = match entries {
        FieldEntries::Any(_) => (true, &[][..], Mention::Only),
        FieldEntries::Only(entries) => (false, &entries[..], Mention::Only),
        FieldEntries::AllBut(entries) => (true, &entries[..], Mention::But),
    };
    (by_default, entries.iter().map(move |entry| (&entry.pattern, mention)))
}

/// The rules that accept what they do not name.
#[derive(Clone, Debug, Default)]
struct ByDefault(Vec<u64>);

impl ByDefault {
    fn add(&mut self, rule: Bit, accepts: bool) {
        self.0.resize(rule.block + 1, 0);
        if accepts {
            self.0[rule.block] |= rule.mask;
        }
    }
}

/// A field whose entries are texts.
#[derive(Clone, Debug, Default)]
struct Texts {
    by_default: ByDefault,
    whole: HashMap<Box<str>, Mentions>,
    beginnings: HashMap<Box<str>, Mentions>,
    /// The lengths of the beginnings, ascending, each once.
    lengths: Vec<usize>,
}

impl Texts {
    fn add<P>(&mut self, entries: &FieldEntries<P>, rule: Bit, text_of: impl Fn(&P) -> (&str, Extent)) {
        let (accepts, mentioned) = mentions(entries);
        self.by_default.add(rule, accepts);
        for (pattern, mention) in mentioned {
            let (text, extent) = text_of(pattern);
            let texts = match extent {
                Extent::Whole => &mut self.whole,
                Extent::Beginning => {
                    if let Err(at) = self.lengths.binary_search(&text.len()) {
                        self.lengths.insert(at, text.len());
                    }
                    &mut self.beginnings
                }
            };
            texts.entry(text.into()).or_default().add(rule, mention);
        }
    }

    /// What rules say of a request with these values.
    fn match_values<'a, 'b>(&'a self, values: impl IntoIterator<Item = &'b str>) -> FieldMatches<'a> {
        let mut hits = Hits::new();
        for value in values {
            hits.extend(self.hits(value, |_| true));
        }
        FieldMatches { by_default: &self.by_default, hits }
    }

    /// What a value is named by: by itself, and by what it begins with, as far as these texts are meant.
    fn hits<'a, F: Fn(&str) -> bool>(&'a self, value: &str, is_meant: F) -> impl Iterator<Item = &'a Mentions> {
        let whole = Some(value).filter(|value| is_meant(value)).and_then(|value| self.whole.get(value));
        let lengths = self.lengths.iter().take_while(move |length| **length <= value.len());
        let beginnings = lengths.filter_map(move |length| value.get(..*length));
        let beginnings = beginnings.filter(move |beginning| is_meant(beginning));
        whole.into_iter().chain(beginnings.filter_map(move |beginning| self.beginnings.get(beginning)))
    }
}

/// The field of resources and subresources.
#[derive(Clone, Debug, Default)]
struct Resources {
    by_default: ByDefault,
    /// By resource, then by subresource.
    named: HashMap<Box<str>, HashMap<Box<str>, Mentions>>,
    /// By subresource, of every resource.
    of_all: HashMap<Box<str>, Mentions>,
}

impl Resources {
    fn add(&mut self, entries: &FieldEntries<ResourcePattern>, rule: Bit) {
        let (accepts, mentioned) = mentions(entries);
        self.by_default.add(rule, accepts);
        for (pattern, mention) in mentioned {
            let subresources = match &pattern.resource {
                Some(resource) => self.named.entry(resource.clone()).or_default(),
                None => &mut self.of_all,
            };
            subresources.entry(pattern.subresource.clone()).or_default().add(rule, mention);
        }
    }

    fn match_resource(&self, resource: &str, subresource: &str) -> FieldMatches<'_> {
        let named = self.named.get(resource).and_then(|subresources| subresources.get(subresource));
        let hits = named.into_iter().chain(self.of_all.get(subresource)).collect();
        FieldMatches { by_default: &self.by_default, hits }
    }
}

/// What the rules say of a request in one field.
struct FieldMatches<'a> {
    by_default: &'a ByDefault,
    hits: Hits<'a>,
}

impl FieldMatches<'_> {
    /// The rules of a block that accept the request.
    fn block(&self, block: usize) -> u64 {
        let MentionedIn { only, but, .. } = self.in_block(block);
        (self.by_default.0[block] | only) & !but
    }

    /// The rules of a block that name it.
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

/// What the rules say of a request in the field of names, of which it may have several spellings.
struct AskedName<'a> {
    /// By all spellings.
    wide: FieldMatches<'a>,
    /// By what is surely meant where there are several, and the rules of policies that deny.
    narrow: Option<(FieldMatches<'a>, &'a [u64])>,
}

impl AskedName<'_> {
    /// The rules of a block that accept the request.
    fn block(&self, block: usize) -> u64 {
        let Some((narrow, denying)) = &self.narrow else { return self.wide.block(block) };
        let (wide, narrow, denying) = (self.wide.in_block(block), narrow.in_block(block), denying[block]);
        let accepting = |only: u64, but: u64| (self.wide.by_default.0[block] | only) & !but;
        (accepting(wide.only, narrow.but) & denying) | (accepting(narrow.only, wide.but) & !denying)
    }
}
