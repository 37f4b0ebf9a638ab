//! Selects the contexts of a kubeconfig, and names their clusters. Without I/O.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use tributary_apimachinery::{ClusterName, InvalidClusterName};

/// An error in `--contexts`, or in the names of the selected contexts.
#[derive(Debug, thiserror::Error)]
pub enum ContextsError {
    /// An item of `--contexts` is empty, for example after a trailing comma.
    #[error("--contexts {0:?} has an empty item; separate contexts by single commas")]
    EmptyItem(String),
    /// A pattern in `--contexts` does not end with a slash.
    #[error("--contexts: the pattern {0:?} does not end with '/'; write /REGEX/")]
    UnterminatedPattern(String),
    /// A pattern in `--contexts` is not a valid regular expression.
    #[error("--contexts: /{pattern}/ is not a regular expression")]
    Pattern {
        /// The invalid pattern, without its slashes.
        pattern: String,
        /// The error of the regular expression.
        #[source]
        source: Box<regex::Error>,
    },
    /// A pattern in `--contexts` matches no context.
    #[error("--contexts: no context matches /{pattern}/; the kubeconfig has {existing}")]
    NothingMatches {
        /// The pattern that matches no context.
        pattern: String,
        /// The existing contexts of the kubeconfig.
        existing: Existing,
    },
    /// The kubeconfig does not contain the named context.
    #[error("--contexts: there is no context {context:?}; the kubeconfig has {existing}")]
    UnknownContext {
        /// Name of the unknown context.
        context: String,
        /// The existing contexts of the kubeconfig.
        existing: Existing,
    },
    /// The exclusions in `--contexts` leave no context.
    #[error("--contexts: every context is excluded; remove an exclusion; the kubeconfig has {existing}")]
    AllExcluded {
        /// The existing contexts of the kubeconfig.
        existing: Existing,
    },
    /// The kubeconfig contains no contexts.
    #[error(
        "the kubeconfig has no contexts; add some, for example by `kubectl config set-context`, or name another file by --kubeconfig"
    )]
    NoContexts,
    /// A `NAME=` in `--contexts` is not a valid cluster name.
    #[error("--contexts {item:?}: the name is not valid; write NAME=CONTEXT")]
    GivenName {
        /// The item of `--contexts` with the invalid name.
        item: String,
        /// The violated rule of cluster names.
        #[source]
        source: InvalidClusterName,
    },
    /// No valid cluster name can be derived from a context's name.
    #[error(
        "no cluster name can be made from context {context:?}; name it by --contexts NAME={context}, or exclude it by --contexts '!{context}'"
    )]
    DerivedName {
        /// Name of the context without a valid cluster name.
        context: String,
        /// The violated rule of cluster names.
        #[source]
        source: InvalidClusterName,
    },
    /// Two contexts would have the same cluster name.
    #[error(
        "contexts {first:?} and {second:?} would both be cluster {name}; name one of them by --contexts NAME={second}, \
         or exclude one by --contexts '!{second}'"
    )]
    Collision {
        /// The cluster name that two contexts would have.
        name: ClusterName,
        /// The first of two contexts with the same cluster name.
        first: String,
        /// The second of two contexts with the same cluster name.
        second: String,
    },
    /// `--contexts` gives two names to one context.
    #[error("context {context:?} is named both {first} and {second}; one context is one cluster")]
    TwoNames {
        /// Name of the context with two names.
        context: String,
        /// The first of the two names.
        first: ClusterName,
        /// The second of the two names.
        second: ClusterName,
    },
}

/// The names of the kubeconfig's contexts, for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing(Vec<String>);

impl std::fmt::Display for Existing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        /// The maximum number of context names in an error message, which fit into a few lines of a terminal.
        const SHOWN_MAX: usize = 20;
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let shown: Vec<String> = self.0.iter().take(SHOWN_MAX).map(|context| format!("{context:?}")).collect();
        f.write_str(&shown.join(", "))?;
        match self.0.len().saturating_sub(SHOWN_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[derive(Clone, Debug)]
enum Selector {
    /// An item without slashes: `context`, `name=context` or `!context`. The form depends on the names of the existing
    /// contexts.
    Item(String),
    /// A pattern that selects contexts: `/regex/`.
    Pattern(Regex),
    /// A pattern that excludes contexts: `!/regex/`.
    Exclusion(Regex),
}

/// The parsed value of `--contexts`. An empty selection selects all contexts.
#[derive(Clone, Debug, Default)]
pub struct ContextSelection(Vec<Selector>);

/// A context that an item of `--contexts` selects, with the name from the item.
struct Choice {
    context: String,
    name: Option<ClusterName>,
    named: bool,
}

/// A selected kubeconfig context and its cluster name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedContext {
    /// The context's name in the kubeconfig.
    pub context: String,
    /// The name of the context's cluster.
    pub cluster: ClusterName,
    /// True if the selection names the context explicitly. False for a context that was selected by a pattern, or as
    /// one of all contexts.
    pub named: bool,
}

impl ContextSelection {
    /// Parses `a,b,/regex/,name=context,!c,!/regex/`. A pattern may contain commas: it ends at a slash that is followed
    /// by a comma or the end.
    ///
    /// # Errors
    /// [`ContextsError`] for invalid syntax.
    pub fn parse(text: &str) -> Result<Self, ContextsError> {
        let mut selectors = Vec::new();
        let mut rest = Some(text);
        while let Some(text_left) = rest {
            let pattern = text_left.strip_prefix('/').map(|after_slash| (after_slash, Selector::Pattern as fn(_) -> _));
            let exclusion =
                text_left.strip_prefix("!/").map(|after_slash| (after_slash, Selector::Exclusion as fn(_) -> _));
            let (selector, after) = match pattern.or(exclusion) {
                Some((after_slash, selector)) => {
                    let (regex, after) = parse_pattern(text_left, after_slash)?;
                    (selector(regex), after)
                }
                None => {
                    let (item, after) = split_at_comma(text_left);
                    if item.trim().trim_start_matches('!').trim().is_empty() {
                        return Err(ContextsError::EmptyItem(text.to_owned()));
                    }
                    (Selector::Item(item.trim().to_owned()), after)
                }
            };
            selectors.push(selector);
            rest = after;
        }
        Ok(Self(selectors))
    }

    /// Selects contexts of a kubeconfig and names their clusters, in the order of the selection.
    ///
    /// A context that two items select is selected once. A name from `NAME=context` takes precedence over a name that
    /// is derived from the context's name. A selection with only exclusions selects all other contexts. An exclusion
    /// takes precedence over all items that select the context.
    ///
    /// # Errors
    /// [`ContextsError`]: each item must match a context, at least one context must remain, and cluster names must be
    /// valid and distinct.
    pub fn select(&self, contexts: &[String]) -> Result<Vec<SelectedContext>, ContextsError> {
        if contexts.is_empty() {
            return Err(ContextsError::NoContexts);
        }
        let mut chosen: Vec<Choice> = Vec::new();
        for choice in self.choices(contexts)? {
            let Some(known) = chosen.iter_mut().find(|known| known.context == choice.context) else {
                chosen.push(choice);
                continue;
            };
            known.named |= choice.named;
            match (&known.name, choice.name) {
                (Some(first), Some(second)) if second != *first => {
                    return Err(ContextsError::TwoNames { context: choice.context, first: first.clone(), second });
                }
                (None, given) => known.name = given,
                _ => {}
            }
        }
        name_clusters(chosen)
    }

    fn choices(&self, contexts: &[String]) -> Result<Vec<Choice>, ContextsError> {
        let unnamed = |context: &String| Choice { context: context.clone(), name: None, named: false };
        let (mut choices, mut excluded, mut chooses) = (Vec::new(), BTreeSet::new(), false);
        for selector in &self.0 {
            if let Some(contexts) = find_excluded(selector, contexts)? {
                excluded.extend(contexts);
                continue;
            }
            chooses = true;
            match selector {
                Selector::Item(item) => choices.push(choose_item(item, contexts)?),
                Selector::Pattern(pattern) | Selector::Exclusion(pattern) => {
                    choices.extend(find_matching(pattern, contexts)?.into_iter().map(unnamed));
                }
            }
        }
        if !chooses {
            choices.extend(contexts.iter().map(unnamed));
        }
        choices.retain(|choice| !excluded.contains(&choice.context));
        if choices.is_empty() {
            return Err(ContextsError::AllExcluded { existing: Existing(contexts.to_vec()) });
        }
        Ok(choices)
    }
}

/// Returns the contexts that an item of `--contexts` excludes; `None` for an item that selects contexts.
fn find_excluded<'a>(selector: &Selector, contexts: &'a [String]) -> Result<Option<Vec<&'a String>>, ContextsError> {
    match selector {
        Selector::Exclusion(pattern) => find_matching(pattern, contexts).map(Some),
        // The name of an existing context may itself begin with an exclamation mark. Such an item excludes nothing.
        Selector::Item(item) if !contexts.contains(item) => match item.strip_prefix('!').map(str::trim) {
            Some(name) => match contexts.iter().find(|context| *context == name) {
                Some(context) => Ok(Some(vec![context])),
                None => Err(unknown_context(name, contexts)),
            },
            None => Ok(None),
        },
        Selector::Item(_) | Selector::Pattern(_) => Ok(None),
    }
}

/// Returns the contexts that a pattern matches, at least one.
fn find_matching<'a>(pattern: &Regex, contexts: &'a [String]) -> Result<Vec<&'a String>, ContextsError> {
    let matching: Vec<_> = contexts.iter().filter(|context| pattern.is_match(context)).collect();
    match matching.is_empty() {
        true => {
            let existing = Existing(contexts.to_vec());
            Err(ContextsError::NothingMatches { pattern: pattern.to_string(), existing })
        }
        false => Ok(matching),
    }
}

fn unknown_context(context: &str, contexts: &[String]) -> ContextsError {
    ContextsError::UnknownContext { context: context.to_owned(), existing: Existing(contexts.to_vec()) }
}

/// Formats a `--contexts` flag that excludes a context in addition to the given selection. The flag is quoted for a
/// shell.
pub fn format_exclusion(context: &str, given: Option<&str>) -> String {
    // A comma in the context's name would end the item, so such a name is excluded by a pattern.
    let item = match context.contains(',') {
        true => format!("!/^{}$/", regex::escape(context)),
        false => format!("!{context}"),
    };
    let given = given.map(|given| format!("{given},")).unwrap_or_default();
    format!("--contexts '{given}{item}'")
}

/// Derives a cluster's name from a context's name: lower case, with `-` for characters that a DNS-1123 label does not
/// allow. For an ARN (`arn:aws:eks:REGION:ACCOUNT:cluster/NAME`), the part after the last slash is used.
///
/// # Errors
/// [`InvalidClusterName`] for an empty result, or the reserved name `all`.
pub fn cluster_name(context: &str) -> Result<ClusterName, InvalidClusterName> {
    let base = match context.strip_prefix("arn:") {
        Some(arn) => arn.rsplit('/').next().unwrap_or(arn),
        None => context,
    };
    let replaced: String = base
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .collect();
    let cut: String = replaced.trim_start_matches('-').chars().take(ClusterName::LENGTH_MAX).collect();
    ClusterName::new(cut.trim_end_matches('-'))
}

fn parse_pattern<'a>(whole: &str, after_slash: &'a str) -> Result<(Regex, Option<&'a str>), ContextsError> {
    let end = after_slash.match_indices('/').map(|(at, _)| at).find(|at| {
        let after = &after_slash[at + 1..];
        after.is_empty() || after.starts_with(',')
    });
    let end = end.ok_or_else(|| ContextsError::UnterminatedPattern(whole.to_owned()))?;
    let pattern = &after_slash[..end];
    let regex = Regex::new(pattern)
        .map_err(|source| ContextsError::Pattern { pattern: pattern.to_owned(), source: Box::new(source) })?;
    Ok((regex, after_slash[end + 1..].strip_prefix(',')))
}

fn split_at_comma(text: &str) -> (&str, Option<&str>) {
    match text.split_once(',') {
        Some((item, rest)) => (item, Some(rest)),
        None => (text, None),
    }
}

/// Parses an item of `--contexts` that selects one context. An item that equals a context's name selects that context,
/// even if the name contains `=`. Any other item is parsed as `name=context`.
fn choose_item(item: &str, contexts: &[String]) -> Result<Choice, ContextsError> {
    let exists = |context: &str| contexts.iter().any(|known| known == context);
    if exists(item) {
        return Ok(Choice { context: item.to_owned(), name: None, named: true });
    }
    let Some((name, context)) = item.split_once('=') else { return Err(unknown_context(item, contexts)) };
    let (name, context) = (name.trim(), context.trim());
    if !exists(context) {
        return Err(unknown_context(context, contexts));
    }
    let name = ClusterName::new(name).map_err(|source| ContextsError::GivenName { item: item.to_owned(), source })?;
    Ok(Choice { context: context.to_owned(), name: Some(name), named: true })
}

fn name_clusters(chosen: Vec<Choice>) -> Result<Vec<SelectedContext>, ContextsError> {
    let mut taken: BTreeMap<ClusterName, String> = BTreeMap::new();
    let mut selected = Vec::with_capacity(chosen.len());
    for Choice { context, name, named } in chosen {
        let cluster = match name {
            Some(name) => name,
            None => cluster_name(&context)
                .map_err(|source| ContextsError::DerivedName { context: context.clone(), source })?,
        };
        if let Some(first) = taken.insert(cluster.clone(), context.clone()) {
            return Err(ContextsError::Collision { name: cluster, first, second: context });
        }
        selected.push(SelectedContext { context, cluster, named });
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_names_derive_from_context_names() {
        for (context, expected) in [
            ("member1", Some("member1")),
            ("kubernetes-admin@eu", Some("kubernetes-admin-eu")),
            ("arn:aws:eks:eu-west-1:123456789012:cluster/Prod_1", Some("prod-1")),
            ("gke_project_europe-west1_main", Some("gke-project-europe-west1-main")),
            ("a/b", Some("a-b")),
            ("default/api-crc-testing:6443/kube:admin", Some("default-api-crc-testing-6443-kube-admin")),
            ("--Ärger--", Some("rger")),
            ("_", None),
            ("", None),
            ("ALL", None),
            ("arn:aws:eks:eu-west-1:1:cluster/all", None),
        ] {
            assert_eq!(cluster_name(context).ok().as_ref().map(ClusterName::as_str), expected, "{context}");
        }
        let long = format!("{}-{}", "a".repeat(62), "b".repeat(9));
        assert_eq!(cluster_name(&long).unwrap().as_str(), "a".repeat(62), "no dash at the end after the cut");
    }

    fn select(selection: &str, contexts: &[&str]) -> Result<Vec<(String, String)>, String> {
        let contexts: Vec<String> = contexts.iter().map(|context| (*context).to_owned()).collect();
        let selection = match selection {
            "" => ContextSelection::default(),
            text => ContextSelection::parse(text).map_err(|error| error.to_string())?,
        };
        let selected = selection.select(&contexts).map_err(|error| error.to_string())?;
        Ok(selected.into_iter().map(|chosen| (chosen.context, chosen.cluster.to_string())).collect())
    }

    #[test]
    fn context_selection_chooses_contexts_and_names_clusters() {
        let contexts = ["eu-1", "eu-2", "us@1", "x=y"];
        for (selection, expected) in [
            ("", vec![("eu-1", "eu-1"), ("eu-2", "eu-2"), ("us@1", "us-1"), ("x=y", "x-y")]),
            ("us@1,eu-1", vec![("us@1", "us-1"), ("eu-1", "eu-1")]),
            ("america=us@1", vec![("us@1", "america")]),
            ("/^eu-/", vec![("eu-1", "eu-1"), ("eu-2", "eu-2")]),
            ("/eu-[0-9]{1,2}/,us@1", vec![("eu-1", "eu-1"), ("eu-2", "eu-2"), ("us@1", "us-1")]),
            ("/eu/,first=eu-1", vec![("eu-1", "first"), ("eu-2", "eu-2")]),
            ("first=eu-1,/eu/", vec![("eu-1", "first"), ("eu-2", "eu-2")]),
            ("eu-1,eu-1", vec![("eu-1", "eu-1")]),
            (" eu-1 , eu-2", vec![("eu-1", "eu-1"), ("eu-2", "eu-2")]),
            ("x=y", vec![("x=y", "x-y")]),
            ("z=x=y", vec![("x=y", "z")]),
            ("!us@1", vec![("eu-1", "eu-1"), ("eu-2", "eu-2"), ("x=y", "x-y")]),
            ("!/^eu-/", vec![("us@1", "us-1"), ("x=y", "x-y")]),
            ("!/^eu-[0-9]{1,2}$/,!x=y", vec![("us@1", "us-1")]),
            ("/^eu-/,!eu-1", vec![("eu-2", "eu-2")]),
            ("!eu-1,/^eu-/,first=eu-1", vec![("eu-2", "eu-2")]),
            ("us@1,! eu-1", vec![("us@1", "us-1")]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|(c, n)| (c.to_owned(), n.to_owned())).collect();
            assert_eq!(select(selection, &contexts), Ok(expected), "{selection}");
        }
    }

    #[test]
    fn selected_context_records_whether_the_user_named_it() {
        let contexts = ["eu", "us"].map(str::to_owned);
        let named = |selection: &str| {
            let selection =
                if selection.is_empty() { Ok(ContextSelection::default()) } else { ContextSelection::parse(selection) };
            let selected = selection.unwrap().select(&contexts).unwrap();
            selected.into_iter().map(|chosen| chosen.named).collect::<Vec<_>>()
        };
        for (selection, expected) in
            [("", [false, false]), ("/./", [false, false]), ("/./,us", [false, true]), ("x=eu,/./", [true, false])]
        {
            assert_eq!(named(selection), expected, "{selection}");
        }
    }

    #[test]
    fn selection_errors_name_the_problem_and_the_available_contexts() {
        for (selection, contexts, expected) in [
            ("nope", vec!["a", "b"], vec!["no context \"nope\"", "\"a\", \"b\""]),
            ("n=nope", vec!["a"], vec!["no context \"nope\"", "\"a\""]),
            ("/x/", vec!["a"], vec!["no context matches /x/", "\"a\""]),
            ("/(/", vec!["a"], vec!["/(/ is not a regular expression"]),
            ("/a", vec!["a"], vec!["does not end with '/'"]),
            ("a,,b", vec!["a", "b"], vec!["empty item"]),
            ("a,", vec!["a", "b"], vec!["empty item"]),
            ("a@b,a_b", vec!["a@b", "a_b"], vec!["\"a@b\" and \"a_b\"", "cluster a-b", "NAME=a_b"]),
            ("x=a,y=a", vec!["a"], vec!["named both x and y"]),
            ("x=a,x=b", vec!["a", "b"], vec!["both be cluster x"]),
            ("A_B=a", vec!["a"], vec!["\"A_B=a\"", "NAME=CONTEXT"]),
            ("", vec!["all"], vec!["from context \"all\"", "NAME=all"]),
            ("", vec![], vec!["has no contexts"]),
            ("!nope", vec!["a", "b"], vec!["no context \"nope\"", "\"a\", \"b\""]),
            ("a,!/x/", vec!["a"], vec!["no context matches /x/", "\"a\""]),
            ("!a,!/b/", vec!["a", "b"], vec!["every context is excluded", "\"a\", \"b\""]),
            ("a,!a", vec!["a", "b"], vec!["every context is excluded"]),
            ("!", vec!["a"], vec!["empty item"]),
            ("a,!,b", vec!["a", "b"], vec!["empty item"]),
            ("!/a", vec!["a"], vec!["does not end with '/'"]),
            ("!n=a", vec!["a"], vec!["no context \"n=a\""]),
            ("!/(/", vec!["a"], vec!["/(/ is not a regular expression"]),
        ] {
            let error = select(selection, &contexts).unwrap_err();
            for part in expected {
                assert!(error.contains(part), "{selection}: {part} in {error}");
            }
        }
    }

    #[test]
    fn context_with_a_leading_exclamation_mark_can_be_selected() {
        assert_eq!(select("!a", &["!a", "b"]), Ok(vec![("!a".to_owned(), "a".to_owned())]));
        assert_eq!(select("!!a", &["!a", "b"]), Ok(vec![("b".to_owned(), "b".to_owned())]));
    }

    #[test]
    fn formatted_contexts_exclusion_excludes_only_the_named_context() {
        for (context, given, expected) in [
            ("b", None, "--contexts '!b'"),
            ("b", Some("/./"), "--contexts '/./,!b'"),
            ("b,c", Some("/./"), "--contexts '/./,!/^b,c$/'"),
        ] {
            let flag = format_exclusion(context, given);
            assert_eq!(flag, expected);
            let value = flag.strip_prefix("--contexts '").unwrap().strip_suffix('\'').unwrap();
            assert_eq!(select(value, &["a", context]), Ok(vec![("a".to_owned(), "a".to_owned())]));
        }
    }

    #[test]
    fn long_list_of_contexts_is_shortened_in_messages() {
        let contexts: Vec<String> = (0..25).map(|number| format!("c{number}")).collect();
        assert!(Existing(contexts).to_string().ends_with("\"c19\" and 5 more"));
    }
}
