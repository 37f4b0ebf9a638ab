//! Adds this program's contexts, clusters and users to the text of a user's kubeconfig, or removes them from the text.
//! Without I/O.
//!
//! The text is edited, so that the user's comments, order and unknown fields stay. The edited text is parsed and
//! compared with the intended document.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::mark::prefix_of;
use crate::yaml::edit::{Edit, apply, lines};
use crate::yaml::layout::{Layout, ListLayout};

/// The keys of a kubeconfig's lists, each with a second key. Each entry of a list has its name under `name`, and its
/// content under the second key.
const LISTS: [(&str, &str); 3] = [("clusters", "cluster"), ("contexts", "context"), ("users", "user")];

/// The reason why a kubeconfig's text cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The text is not a valid kubeconfig. The parser's message is omitted, because the message quotes the file.
    #[error("does not parse{0}: the text is not YAML in the form of a kubeconfig")]
    Parse(String),
    /// The kubeconfig already contains an entry with a name of a new entry, and this program did not add the existing
    /// entry.
    #[error("already has {kind} {name:?}, which tributary did not add; choose different names by --kubeconfig-prefix")]
    Taken {
        /// The list of the entry: `clusters`, `contexts` or `users`.
        kind: &'static str,
        /// Name of the entry that this program did not add.
        name: String,
    },
    /// The kubeconfig's YAML has a form that cannot be edited, for example anchors.
    #[error(
        "is written in a form that cannot be changed safely (anchors, several documents); put the contexts in a file of \
         their own by --write-kubeconfig, and name both files in KUBECONFIG"
    )]
    Form,
}

/// Entries for a kubeconfig. Each entry is marked as added by this program, and each entry's name begins with the
/// prefix.
#[derive(Clone, Debug)]
pub struct Entries {
    /// The prefix of the names of all entries.
    pub prefix: String,
    /// The entries of `clusters`, `contexts` and `users`.
    pub lists: [Vec<Value>; 3],
}

/// The result of removing this program's entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The kubeconfig's text without the entries.
    pub text: String,
    /// The names of the removed contexts.
    pub contexts: Vec<String>,
    /// The current context, if it was removed.
    pub current: Option<String>,
}

/// An entry with the same name in a second kubeconfig. If both files are in `$KUBECONFIG`, the entry in the first file
/// hides the entry in the second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameName {
    /// The list of the entry: `clusters`, `contexts` or `users`.
    pub kind: &'static str,
    /// Name of the duplicate entry.
    pub name: String,
    /// True if this program added the duplicate entry.
    pub is_ours: bool,
}

/// Returns the first entry of a second kubeconfig that has the name of one of these entries. Returns `None` for an
/// invalid kubeconfig.
pub fn same_name(other: &str, entries: &Entries) -> Option<SameName> {
    let document = parse(other).ok()?;
    LISTS.into_iter().zip(&entries.lists).find_map(|((kind, content), own)| {
        let known = document.get(kind).and_then(Value::as_array).into_iter().flatten();
        let is_own = |known: &&Value| own.iter().any(|own| name_of(own).is_some() && name_of(own) == name_of(known));
        let same = known.into_iter().find(is_own)?;
        Some(SameName { kind, name: name_of(same)?.to_owned(), is_ours: prefix_of(&same[content]).is_some() })
    })
}

/// Adds entries to a kubeconfig's text, and replaces this program's entries with the same prefix. Returns `None` if the
/// text already contains these entries. A namespace that a user has set in a replaced context stays.
///
/// # Errors
/// [`ChangeError`].
pub fn put(text: &str, entries: &Entries) -> Result<Option<String>, ChangeError> {
    let mut document = parse(text)?;
    let entries = with_namespaces(entries, &document);
    let is_ours = |entry: &Value, content: &str| prefix_of(&entry[content]) == Some(&entries.prefix);
    if has_entries(&document, &entries, is_ours) {
        return Ok(None);
    }
    let without = changed(text, |layout| removals(layout, &document, is_ours))?;
    for (list, content) in LISTS {
        retain(&mut document, list, |entry| !is_ours(entry, content));
    }
    if !document.is_null() && parse(&without)? != document {
        return Err(ChangeError::Form);
    }
    for ((list, _), added) in LISTS.into_iter().zip(&entries.lists) {
        let taken = names(&document, list);
        if let Some(name) = added.iter().filter_map(name_of).find(|name| taken.contains(name)) {
            return Err(ChangeError::Taken { kind: list, name: name.to_owned() });
        }
    }
    let put = changed(&without, |layout| insertions(layout, &entries))?;
    let expected = with(document, &entries);
    if parse(&put)? == expected { Ok(Some(put)) } else { Err(ChangeError::Form) }
}

/// Removes all entries of this program from a kubeconfig's text. Returns `None` if there are no such entries.
///
/// # Errors
/// [`ChangeError`].
pub fn remove_own_entries(text: &str) -> Result<Option<Removal>, ChangeError> {
    let mut document = parse(text)?;
    let is_ours = |entry: &Value, content: &str| prefix_of(&entry[content]).is_some();
    let contexts = document["contexts"].as_array().into_iter().flatten();
    let contexts: Vec<String> =
        contexts.filter(|entry| is_ours(entry, "context")).filter_map(name_of).map(str::to_owned).collect();
    let without = changed(text, |layout| removals(layout, &document, is_ours))?;
    if without == text {
        return Ok(None);
    }
    for (list, content) in LISTS {
        retain(&mut document, list, |entry| !is_ours(entry, content));
    }
    if parse(&without)? != document {
        return Err(ChangeError::Form);
    }
    let current = document["current-context"].as_str().filter(|name| contexts.iter().any(|own| own == name));
    Ok(Some(Removal { current: current.map(str::to_owned), text: without, contexts }))
}

/// Checks that a kubeconfig's text is valid, so that entries can be added and removed.
///
/// # Errors
/// [`ChangeError::Parse`].
pub fn check(text: &str) -> Result<(), ChangeError> {
    parse(text).map(drop)
}

fn parse(text: &str) -> Result<Value, ChangeError> {
    let document: Value = serde_saphyr::from_str(text).map_err(|error| {
        let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
        ChangeError::Parse(place.unwrap_or_default())
    })?;
    let is_list = |list: &str| document.get(list).is_none_or(|list| list.is_array() || list.is_null());
    match &document {
        Value::Null => Ok(document),
        Value::Object(_) if LISTS.iter().all(|(list, _)| is_list(list)) => Ok(document),
        _ => Err(ChangeError::Parse(String::new())),
    }
}

fn name_of(entry: &Value) -> Option<&str> {
    entry.get("name")?.as_str()
}

fn names<'a>(document: &'a Value, list: &str) -> BTreeSet<&'a str> {
    document.get(list).and_then(Value::as_array).into_iter().flatten().filter_map(name_of).collect()
}

fn retain(document: &mut Value, list: &str, keep: impl Fn(&Value) -> bool) {
    if let Some(entries) = document.get_mut(list).and_then(Value::as_array_mut) {
        entries.retain(keep);
    }
}

/// Copies the namespaces of a kubeconfig's contexts into the new entries with the same names.
fn with_namespaces(entries: &Entries, document: &Value) -> Entries {
    let mut entries = entries.clone();
    let known = document.get("contexts").and_then(Value::as_array).into_iter().flatten();
    for known in known.filter(|known| prefix_of(&known["context"]) == Some(&entries.prefix)) {
        let same = entries.lists[1].iter_mut().find(|entry| name_of(entry) == name_of(known));
        if let (Some(entry), Some(namespace)) = (same, known["context"].get("namespace")) {
            entry["context"]["namespace"] = namespace.clone();
        }
    }
    entries
}

/// Returns whether the marked entries of a kubeconfig equal `entries`, in any order.
fn has_entries(document: &Value, entries: &Entries, is_ours: impl Fn(&Value, &str) -> bool) -> bool {
    LISTS.into_iter().zip(&entries.lists).all(|((list, content), wanted)| {
        let own = document.get(list).and_then(Value::as_array).into_iter().flatten();
        let own: Vec<&Value> = own.filter(|entry| is_ours(entry, content)).collect();
        own.len() == wanted.len() && wanted.iter().all(|entry| own.contains(&entry))
    })
}

/// Returns the kubeconfig with the entries appended to its lists.
fn with(document: Value, entries: &Entries) -> Value {
    let mut document = match document {
        Value::Object(fields) => fields,
        _ => new_document(),
    };
    for ((list, _), added) in LISTS.into_iter().zip(&entries.lists).filter(|(_, added)| !added.is_empty()) {
        let known = document.entry(list).or_insert_with(|| json!([]));
        if known.is_null() {
            *known = json!([]);
        }
        known.as_array_mut().into_iter().for_each(|known| known.extend(added.iter().cloned()));
    }
    Value::Object(document)
}

fn new_document() -> Map<String, Value> {
    [("apiVersion", "v1"), ("kind", "Config")].map(|(key, value)| (key.to_owned(), value.into())).into_iter().collect()
}

/// Applies the edits to a kubeconfig's text. Fails if the text has a form of YAML that cannot be edited.
fn changed(text: &str, edits: impl FnOnce(&Layout<'_>) -> Option<Vec<Edit>>) -> Result<String, ChangeError> {
    let layout = Layout::parse(text).map_err(|_| ChangeError::Form)?;
    edits(&layout).and_then(|edits| apply(text, edits)).ok_or(ChangeError::Form)
}

/// Returns the edits that remove marked entries. An empty list becomes `[]`, because a key without a value would be
/// `null`.
fn removals(layout: &Layout<'_>, document: &Value, is_ours: impl Fn(&Value, &str) -> bool) -> Option<Vec<Edit>> {
    let mut edits = Vec::new();
    for (list, content) in LISTS {
        let values = document.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let own: Vec<bool> = values.iter().map(|entry| is_ours(entry, content)).collect();
        if !own.contains(&true) {
            continue;
        }
        match layout.list(list)? {
            ListLayout::Block { colon, entries, .. } if entries.len() == own.len() => {
                let removed = entries.iter().zip(&own).filter(|(_, own)| **own);
                edits.extend(removed.map(|(place, _)| Edit::remove(*place)));
                if !own.contains(&false) {
                    edits.push(Edit::insert(colon, " []".to_owned()));
                }
            }
            ListLayout::Flow { entries, .. } if entries.len() == own.len() => {
                let first_kept = own.iter().position(|own| !own).unwrap_or(own.len());
                for (index, (start, end)) in entries.iter().copied().enumerate().filter(|(index, _)| own[*index]) {
                    edits.push(Edit::remove(if index < first_kept {
                        // When an entry before the first kept entry is removed, the comma after it is removed, too.
                        (start, entries.get(index + 1).map_or(end, |next| next.0))
                    } else {
                        (entries[index - 1].1, end)
                    }));
                }
            }
            _ => return None,
        }
    }
    Some(edits)
}

/// Returns the edits that append the new entries to a kubeconfig's lists.
fn insertions(layout: &Layout<'_>, entries: &Entries) -> Option<Vec<Edit>> {
    // A list that the document lacks is appended at the end of the document, after the last list and its new entries.
    let (mut edits, mut new_keys) = (Vec::new(), Vec::new());
    let end = layout.line_end(layout.end());
    if layout.is_empty() {
        let header = lines(&Value::Object(new_document()), 0)?;
        new_keys.push(Edit::insert(end, layout.with_newline(end, header)));
    }
    let mut is_first_key = layout.has_no_keys();
    for ((list, _), added) in LISTS.into_iter().zip(&entries.lists).filter(|(_, added)| !added.is_empty()) {
        let joined = added.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
        let added = Value::from(added.clone());
        match layout.list(list)? {
            ListLayout::Absent if layout.is_flow() => {
                let comma = if std::mem::take(&mut is_first_key) { "" } else { ", " };
                new_keys.push(Edit::insert(layout.end().checked_sub(1)?, format!("{comma}\"{list}\": [{joined}]")));
            }
            ListLayout::Absent => {
                let indent = layout.indent();
                let put = format!("{:indent$}{list}:\n{}", "", lines(&added, indent)?);
                new_keys.push(Edit::insert(end, layout.with_newline(end, put)));
            }
            ListLayout::Empty { colon, end } if layout.is_flow() => {
                edits.push(Edit { from: colon, to: end, put: format!(" [{joined}]") });
            }
            ListLayout::Empty { colon, end } => {
                let line_end = layout.line_end(end);
                edits.push(Edit::remove((colon, end)));
                edits.push(Edit::insert(line_end, layout.with_newline(line_end, lines(&added, layout.indent())?)));
            }
            ListLayout::Flow { entries } => edits.push(Edit::insert(entries.last()?.1, format!(", {joined}"))),
            ListLayout::Block { indent, entries, .. } => {
                let end = entries.last()?.1;
                edits.push(Edit::insert(end, layout.with_newline(end, lines(&added, indent)?)));
            }
        }
    }
    edits.extend(new_keys);
    Some(edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(prefix: &str, clusters: &[&str]) -> Entries {
        let mark = super::super::mark::mark(prefix);
        let named = |content: &str, value: &dyn Fn(&str) -> Value| -> Vec<Value> {
            clusters.iter().map(|name| json!({ "name": format!("{prefix}{name}"), content: value(name) })).collect()
        };
        let server =
            |name: &str| json!({ "server": format!("https://127.0.0.1:7443/clusters/{name}"), "extensions": mark });
        let context = |name: &str| json!({ "cluster": format!("{prefix}{name}"), "user": format!("{prefix}user"), "extensions": mark });
        let user = json!({ "name": format!("{prefix}user"), "user": { "token": "123e45", "extensions": mark } });
        Entries {
            prefix: prefix.to_owned(),
            lists: [named("cluster", &server), named("context", &context), vec![user]],
        }
    }

    /// A kubeconfig in kubectl's form, with manual additions.
    const OWN: &str = "# mine
apiVersion: v1
clusters:
- cluster:
    certificate-authority: ca.pem # beside this file
    server: https://eu.example:6443
  name: eu
# the old one
- name: us
  cluster: { server: 'https://us.example' }
contexts:
- context:
    cluster: eu
    namespace: shop
    user: admin
  name: eu
current-context: eu
kind: Config
preferences: {}
unknown: [1, 2]
users:
- name: admin
  user:
    token: |
      precious
";

    const FORMS: &[&str] = &[
        OWN,
        "",
        "# nothing but this\n",
        "# no newline at the end",
        "---\napiVersion: v1\nkind: Config\n",
        "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: null\nusers:\n",
        "apiVersion: v1\nclusters: # none\nusers: [] # none\ncontexts: ~",
        "users:\n- name: a\n  user:\n    token:\nclusters:\n\n  -   name: x\n      cluster:\n        server: s\n\n# end\n",
        "contexts:\n  - name: x\n    context: {cluster: a,\n      user: b}",
        "{}",
        "{\"apiVersion\": \"v1\", \"clusters\": [], \"contexts\": null}\n",
        "{\n  \"users\": [\n    {\"name\": \"a\", \"user\": {}},\n    {\"name\": \"b\", \"user\": {}}\n  ]\n}\n",
        "users: [{name: a, user: {}}]\nclusters: [ ]\n",
        "apiVersion: v1\r\nclusters:\r\n- name: a\r\n  cluster: {}\r\nusers: []\r\n",
    ];

    #[test]
    fn added_kubeconfig_entries_are_removed_completely() {
        for text in FORMS {
            let before = parse(text).unwrap();
            let put_in = put(text, &entries("tributary-", &["all", "eu"])).unwrap().unwrap();
            let found = parse(&put_in).unwrap();
            for (list, names) in [("clusters", 2), ("contexts", 2), ("users", 1)] {
                let known = before.get(list).and_then(Value::as_array).map_or(0, Vec::len);
                assert_eq!(found[list].as_array().unwrap().len(), known + names, "{put_in}");
            }
            assert_eq!(found.get("current-context"), before.get("current-context"));
            let Removal { text: after, contexts, current } = remove_own_entries(&put_in).unwrap().unwrap();
            assert_eq!((contexts, current), (vec!["tributary-all".to_owned(), "tributary-eu".to_owned()], None));
            let mut expected = if before.is_null() { Value::Object(new_document()) } else { before };
            for (list, _) in LISTS {
                let known = expected[list].take();
                expected[list] = if known.is_null() { json!([]) } else { known };
            }
            assert_eq!(parse(&after).unwrap(), expected, "{text:?} became {after:?}");
            assert_eq!(remove_own_entries(&after).unwrap(), None);
        }
    }

    #[test]
    fn kubeconfig_entries_of_the_user_stay_byte_for_byte() {
        let entries = entries("tributary-", &["all", "eu"]);
        let put_in = put(OWN, &entries).unwrap().unwrap();
        let mut kept = put_in.lines();
        for line in OWN.lines() {
            assert!(kept.any(|kept| kept == line), "{line:?} is gone from {put_in}");
        }
        assert_eq!(remove_own_entries(&put_in).unwrap().unwrap().text, OWN);
        // Entries of other programs follow the marked entries in each list.
        let more = put_in.replace("users:\n- name: admin", "users:\n- name: other\n  user: {}\n- name: admin")
            + "- name: last\n  user: {}\n";
        let kept = OWN.replace("users:\n- name: admin", "users:\n- name: other\n  user: {}\n- name: admin")
            + "- name: last\n  user: {}\n";
        assert_eq!(remove_own_entries(&more).unwrap().unwrap().text, kept);
    }

    #[test]
    fn second_kubeconfig_write_replaces_only_its_own_entries() {
        let first = put(OWN, &entries("tributary-", &["all", "eu"])).unwrap().unwrap();
        assert_eq!(put(&first, &entries("tributary-", &["all", "eu"])).unwrap(), None, "nothing to do");
        // The user has set a namespace in a context of this program, as `kubectl config set-context` does.
        let chosen = first.replace("    cluster: tributary-eu\n", "    cluster: tributary-eu\n    namespace: blue\n");
        assert_ne!(first, chosen);
        assert_eq!(put(&chosen, &entries("tributary-", &["all", "eu"])).unwrap(), None, "the namespace is theirs");
        let fewer = put(&chosen, &entries("tributary-", &["eu"])).unwrap().unwrap();
        assert!(fewer.contains("namespace: blue") && !fewer.contains("tributary-all"), "{fewer}");
        let both = put(&fewer, &entries("other-", &["all"])).unwrap().unwrap();
        for name in ["tributary-eu", "tributary-user", "other-all", "other-user"] {
            assert!(both.contains(name), "{name} in {both}");
        }
        let current = both.replace("current-context: eu", "current-context: other-all");
        let removal = remove_own_entries(&current).unwrap().unwrap();
        assert_eq!(removal.current.as_deref(), Some("other-all"));
        assert_eq!(removal.text, OWN.replace("current-context: eu", "current-context: other-all"));
    }

    #[test]
    fn kubeconfig_entries_of_other_programs_are_not_overwritten() {
        for (text, kind) in [
            ("contexts:\n- name: tributary-all\n  context: {}\n", "contexts"),
            ("users:\n- name: tributary-user\n  user: {}\n", "users"),
            (
                "clusters: [{name: tributary-all, cluster: {extensions: [{name: tributary.dev, extension: {}}]}}]",
                "clusters",
            ),
        ] {
            let taken = put(text, &entries("tributary-", &["all"])).unwrap_err();
            assert!(matches!(&taken, ChangeError::Taken { kind: list, .. } if *list == kind), "{taken}");
            assert!(taken.to_string().contains("--kubeconfig-prefix"));
        }
    }

    #[test]
    fn duplicate_entry_name_in_a_second_kubeconfig_is_found() {
        let own = entries("tributary-", &["all"]);
        let of_an_earlier_run = put("", &own).unwrap().unwrap();
        for (other, expected) in [
            (OWN, None),
            ("", None),
            ("clusters: [", None),
            ("users:\n- name: tributary-user\n  user: {}\n", Some(("users", "tributary-user", false))),
            (&*of_an_earlier_run, Some(("clusters", "tributary-all", true))),
        ] {
            let found = same_name(other, &own);
            let found = found.as_ref().map(|found| (found.kind, &*found.name, found.is_ours));
            assert_eq!(found, expected, "{other}");
        }
    }

    #[test]
    fn kubeconfig_that_cannot_be_edited_safely_is_refused() {
        for (text, expected) in [
            ("clusters: [\n", "at line"),
            ("a: 1\nclusters:\n- name: precious\n bad\n", "at line"),
            ("clusters: {}\n", "not YAML in the form of a kubeconfig"),
            ("just text\n", "not YAML in the form of a kubeconfig"),
            ("- a\n", "not YAML in the form of a kubeconfig"),
            ("x: &list\n- name: a\nclusters: *list\n", "cannot be changed safely"),
        ] {
            let error = put(text, &entries("tributary-", &["all"])).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("precious"), "{text:?}: {error}");
        }
    }
}
