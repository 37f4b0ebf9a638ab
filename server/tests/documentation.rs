//! Checks the documents against the code: the tables of flags and fields, the manifests of Tributary's accounts, and
//! the paths in the documents.
//!
//! The tables of flags and fields in `docs/configuration.md` are generated from the command line's definition and from
//! the schemas of the CustomResourceDefinitions. This command writes the tables:
//!
//! ```text
//! TRIBUTARY_WRITE_DOCS=1 cargo test --workspace --locked --test documentation
//! ```

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory};
use serde_json::Value;

/// The environment variable that makes [`flag_and_field_tables_match_the_code`] write the tables.
const WRITE: &str = "TRIBUTARY_WRITE_DOCS";

/// The document that contains the tables, each between `<!-- table: NAME -->` and `<!-- end -->`.
const CONFIGURATION: &str = "docs/configuration.md";

#[test]
fn flag_and_field_tables_match_the_code() {
    let path = root().join(CONFIGURATION);
    let committed = fs::read_to_string(&path).unwrap();
    let generated = tables().iter().fold(committed.clone(), |text, (name, table)| with_table(&text, name, table));
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &generated).unwrap();
        return;
    }
    let differing = committed.lines().zip(generated.lines()).find(|(committed, generated)| committed != generated);
    assert!(
        committed == generated,
        "{CONFIGURATION} is out of date; run `{WRITE}=1 cargo test --workspace --locked --test documentation` and commit \
         the result. The first difference: {differing:#?}"
    );
}

/// A profile for profile-guided optimization is valid for only one compiler version. With a profile for another
/// version, the released program would be slower, and no other check would fail.
#[test]
fn profile_for_the_pinned_compiler_exists() {
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    let profile = format!("deploy/container/profile/{channel}-x86_64-unknown-linux-gnu.profdata.xz");
    assert!(root().join(&profile).exists(), "{profile} is missing: deploy/container/profile.sh makes it");
}

/// The folder with the manifests of Tributary's accounts in members, by impersonation and profile.
const MEMBERS: &str = "deploy/members";

#[test]
fn account_manifests_match_the_code() {
    let generated = tributary_server::commands::join::manifests().unwrap();
    for (file, text) in &generated {
        let path = root().join(MEMBERS).join(file);
        if std::env::var_os(WRITE).is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == *text,
            "{MEMBERS}/{file} is out of date; run `{WRITE}=1 cargo test --workspace --locked --test documentation` and \
             commit the result"
        );
    }
    let folders = fs::read_dir(root().join(MEMBERS)).unwrap();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap()).count();
    assert_eq!(files, generated.len(), "{MEMBERS} has files that nobody makes");
}

#[test]
fn paths_in_documents_exist() {
    let mut missing = BTreeSet::new();
    for document in documents() {
        let text = fs::read_to_string(root().join(&document)).unwrap();
        let beside = document.parent().unwrap_or(Path::new(""));
        for (file, heading) in links(&text) {
            let target = if file.is_empty() { root().join(&document) } else { root().join(beside).join(file) };
            let has_heading = || headings(&fs::read_to_string(&target).unwrap()).any(|known| known == heading);
            if !target.exists() || !heading.is_empty() && !has_heading() {
                missing.insert(format!("{}: the link {file}#{heading}", document.display()));
            }
        }
        for named in named_paths(&text) {
            // Paths in backquotes are relative to the root of the repository, and must exist.
            if !root().join(&named).exists() {
                missing.insert(format!("{}: the path {named}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "documents name what is not there: {missing:#?}");
}

/// A test name in `docs/precedents.md` that ends with `…` stands for all names with this beginning.
#[test]
fn tests_named_in_the_document_of_precedents_exist() {
    let text = fs::read_to_string(root().join("docs/precedents.md")).unwrap();
    let mut missing = Vec::new();
    for row in text.lines().filter(|line| line.starts_with('|')) {
        let quoted: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let sources = quoted.iter().filter(|text| text.ends_with(".rs"));
        let code: String = sources.filter_map(|path| fs::read_to_string(root().join(path)).ok()).collect();
        let is_name = |text: &&&str| {
            text.contains('_') && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_…".contains(c))
        };
        let names = quoted.iter().filter(is_name).filter(|_| !code.is_empty());
        missing.extend(names.copied().filter(|name| {
            let end = if name.ends_with('…') { "" } else { "(" };
            let name = name.trim_end_matches('…');
            !code.contains(&format!("fn {name}{end}")) && !code.contains(&format!("::{name}"))
        }));
    }
    assert!(missing.is_empty(), "docs/precedents.md names tests that none of the row's files has: {missing:#?}");
}

/// The test checks the line length limit in `CONTRIBUTING.md`. Table rows, links and drawings may be longer.
#[test]
fn comment_lines_are_as_short_as_code_lines() {
    let is_wide = |line: &str| {
        let comment = line.trim_start();
        let text = comment.trim_start_matches(['/', '!']).trim_start();
        let may_be = text.starts_with('|')
            || text.contains("](")
            || text.contains("://")
            || text.contains('─')
            || !text.contains(' ');
        comment.starts_with("//") && line.chars().count() > 120 && !may_be
    };
    let mut wide = Vec::new();
    for file in rust_files(&root()) {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().enumerate().filter(|(_, line)| is_wide(line));
        wide.extend(lines.map(|(number, _)| format!("{}:{}", file.display(), number + 1)));
    }
    assert!(wide.is_empty(), "comments of more than 120 columns: {wide:#?}");
}

/// Prints all messages as one list, so that a person can check them (`--nocapture`). A message may begin with "it" if
/// an outer message names the file or the cluster.
#[test]
fn error_messages_begin_with_their_subject() {
    const VAGUE: [&str; 9] = ["what", "who", "whoever", "those", "these", "that", "they", "nobody", "somebody"];
    let messages = messages();
    assert!(messages.len() > 300, "{} messages", messages.len());
    for (file, message) in &messages {
        println!("{file}: {message}");
    }
    let is_vague = |message: &String| message.split(' ').next().is_some_and(|first| VAGUE.contains(&first));
    let vague: Vec<_> = messages.iter().filter(|(_, message)| is_vague(message)).collect();
    assert!(vague.is_empty(), "name the subject: {vague:#?}");
}

/// Returns the texts of errors and of log lines, with the names of their files.
fn messages() -> Vec<(String, String)> {
    let mut messages = Vec::new();
    for file in rust_files(&root()) {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        let is_for_tests =
            ["e2e/", "bench/", "fuzz", "simulator/", ".ci/"].iter().any(|folder| name.starts_with(folder));
        if is_for_tests || name.contains("/tests") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let errors = code.split("#[error(").skip(1).filter_map(|rest| rest.split_once(")]"));
        messages.extend(errors.filter_map(|(error, _)| literals(error).next()).map(|text| (name.clone(), text)));
        for level in ["info", "warn", "error"] {
            let opening = format!("tracing::{level}!(");
            let lines = code.split(&opening).skip(1).filter_map(|rest| rest.split_once(");"));
            messages.extend(lines.filter_map(|(line, _)| literals(line).last()).map(|text| (name.clone(), text)));
        }
    }
    messages
}

/// Returns the string literals in a piece of code, with their lines joined.
fn literals(code: &str) -> impl Iterator<Item = String> {
    let texts = code.replace("\\\"", "\u{201d}");
    let literals: Vec<String> = texts.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    literals.into_iter().map(|literal| {
        let lines: Vec<_> = literal.split("\\\n").map(str::trim).collect();
        lines.join(" ").replace('\u{201d}', "\"")
    })
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn every_decision_record_is_listed() {
    let listed = fs::read_to_string(root().join("docs/decisions/README.md")).unwrap();
    for page in markdown_files("docs/decisions") {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "README.md" || listed.contains(&format!("]({name})")), "docs/decisions/README.md lacks {name}");
    }
}

#[test]
fn every_limit_is_documented() {
    let text = fs::read_to_string(root().join("docs/operating.md")).unwrap();
    for (limit, _) in tributary_router::Limits::default().named() {
        assert!(text.contains(&format!("`{limit}`")), "docs/operating.md lacks the limit {limit}");
    }
}

/// Users look up the reason of a condition in the document of the hub.
#[test]
fn every_reason_of_a_hub_condition_is_documented() {
    let text = fs::read_to_string(root().join("docs/hub.md")).unwrap();
    let mut reasons = BTreeSet::new();
    let mut files = rust_files(&root().join("server/hub/src"));
    files.push(root().join("router/fleet/src/cluster_status.rs"));
    for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
        let code = fs::read_to_string(file).unwrap();
        let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for call in
            ["failed(", "fulfilled(", "missing(", "forbidden(", "reason: ", "::True, ", "::False, ", "::Unknown, "]
        {
            let quoted = code.split(call).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
            reasons.extend(quoted.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
    assert!(reasons.len() > 30, "{reasons:?}");
    let missing: Vec<_> = reasons.iter().filter(|reason| !text.contains(&format!("`{reason}`"))).collect();
    assert!(missing.is_empty(), "docs/hub.md lacks the reasons {missing:?}");
}

/// Returns every generated table of the document, with its name in the document.
fn tables() -> Vec<(String, String)> {
    let program = tributary_server::cli::Cli::command();
    let mut tables = vec![("every command".to_owned(), flags(&program, Some("Logging")))];
    for path in [
        &["serve"][..],
        &["demo"],
        &["status"],
        &["check"],
        &["join"],
        &["convert"],
        &["policy", "test"],
        &["rv", "decode"],
        &["completion"],
        &["kubeconfig", "remove"],
        &["kubeconfig", "user"],
    ] {
        let command = path.iter().fold(&program, |command, name| command.find_subcommand(name).unwrap());
        tables.push((path.join(" "), flags(command, None)));
    }
    let plugin = tributary_server::cli::PluginCli::command();
    let which = flags(plugin.find_subcommand("which").unwrap(), None);
    let diff = flags(plugin.find_subcommand("diff").unwrap(), None);
    // The table of `kubectl tributary diff` omits the flags that are also in the first table, because the document
    // describes them once.
    let own = diff.split_inclusive('\n').enumerate().filter(|(line, row)| *line < 2 || !which.contains(*row));
    tables.push(("kubectl tributary diff".to_owned(), own.map(|(_, row)| row).collect()));
    tables.push(("kubectl tributary which".to_owned(), which));
    let serve = program.find_subcommand("serve").unwrap();
    tables.push(("serve limits".to_owned(), flags(serve, Some("Limits"))));
    let replicas = "Replicas that share the limits of flow control";
    tables.push(("serve replicas".to_owned(), flags(serve, Some(replicas))));
    tables.push(("serve audit".to_owned(), flags(serve, Some("Audit"))));
    tables.push(("serve access log".to_owned(), flags(serve, Some("Access log"))));
    tables.push(("serve tracing".to_owned(), flags(serve, Some("Tracing"))));
    let shared = "Shared mode: many users, each with their own rights";
    tables.push(("serve shared".to_owned(), flags(serve, Some(shared))));
    let hub = "Hub mode: configuration, credentials and the aggregated API";
    tables.push(("serve hub".to_owned(), flags(serve, Some(hub))));
    let publication = "Hub mode: publication of the members for controllers";
    tables.push(("serve publication".to_owned(), flags(serve, Some(publication))));
    let mut described = Vec::new();
    for definition in tributary_crds::render::definitions() {
        let kind = definition.spec.names.kind.clone();
        let definition = serde_json::to_value(definition).unwrap();
        let spec = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        if spec.is_null() {
            // DeniedUsers has a single field, which docs/hub.md and docs/shared-mode.md describe. So it needs no table.
            continue;
        }
        let table = fields(&kind, spec, &mut described);
        tables.push((kind, table));
    }
    tables
}

/// Returns the table of a command's flags under one heading of its help.
fn flags(command: &Command, heading: Option<&str>) -> String {
    let is_shown = |argument: &&Arg| argument.get_help_heading() == heading && !argument.is_hide_set();
    let mut table = String::from("| flag | default | meaning |\n|---|---|---|\n");
    let mut described = Vec::new();
    for argument in command.get_arguments().filter(is_shown) {
        let name = argument.get_id().as_str();
        if name != "help" && name != "version" {
            table.push_str(&flag(argument, &mut described));
        }
    }
    table
}

/// Describes a flag and its values. The descriptions of the flag's values are omitted if an earlier flag in `described`
/// has the same descriptions.
fn flag(argument: &Arg, described: &mut Vec<String>) -> String {
    let value = argument.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
    let takes_value = argument.get_action().takes_values();
    let is_optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
    let short = argument.get_short().map(|short| format!(", `-{short}`")).unwrap_or_default();
    let name = match argument.get_long() {
        Some(long) if !takes_value => format!("`--{long}`{short}"),
        Some(long) if is_optional => format!("`--{long}[={value}]`{short}"),
        Some(long) => format!("`--{long} {value}`{short}"),
        None => format!("`{value}`"),
    };
    let (meaning, told) = without_default(&argument.get_help().unwrap_or_default().to_string());
    let values: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = match (values.is_empty(), argument.is_required_set()) {
        (false, _) => with_unit(&values.join(",")),
        (true, true) => "required".to_owned(),
        (true, false) => told,
    };
    let mut meaning = format!("{meaning}.");
    let allowed = argument.get_possible_values();
    let allowed = allowed.iter().filter(|_| takes_value && value != "BOOL").map(|allowed| {
        let help = allowed.get_help().map(|help| format!(": {help}")).unwrap_or_default();
        format!("<br>`{}`{help}", allowed.get_name())
    });
    let allowed: String = allowed.collect();
    if !described.contains(&allowed) {
        meaning.push_str(&allowed);
        described.push(allowed);
    }
    if let Some(variable) = argument.get_env() {
        meaning.push_str(&format!("<br>Environment: `{}`", variable.to_string_lossy()));
    }
    row(&[&name, &default, &meaning])
}

/// Formats a default value. A whole number of MiB is also formatted in MiB.
fn with_unit(value: &str) -> String {
    match value.parse::<u64>() {
        Ok(bytes) if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("`{value}` ({} MiB)", bytes >> 20),
        _ => format!("`{value}`"),
    }
}

fn without_default(help: &str) -> (String, String) {
    match help.split_once(" [default: ") {
        Some((before, default)) => (before.to_owned(), default.trim_end_matches(']').to_owned()),
        None => (help.to_owned(), String::new()),
    }
}

struct DescribedObject {
    properties: Value,
    kind: String,
    path: String,
}

/// A table of the fields of a kind. An object with the same fields as a previously described object refers to that
/// object.
struct FieldTable<'a> {
    kind: &'a str,
    described: &'a mut Vec<DescribedObject>,
    text: String,
}

/// Returns the fields of an object's `spec`. The fields of a nested object follow the row of this object.
fn fields(kind: &str, spec: &Value, described: &mut Vec<DescribedObject>) -> String {
    let text = String::from("| field | type; default | meaning |\n|---|---|---|\n");
    let mut table = FieldTable { kind, described, text };
    table.add(spec, "");
    table.text
}

impl FieldTable<'_> {
    fn add(&mut self, schema: &Value, prefix: &str) {
        let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let default = match &field["default"] {
                Value::Null if required.contains(&name.as_str()) => "; required".to_owned(),
                Value::Null => String::new(),
                Value::String(text) => format!("; `{text}`"),
                other => format!("; `{other}`"),
            };
            let (nested, brackets) = if field["items"].is_object() { (&field["items"], "[]") } else { (field, "") };
            let path = format!("{prefix}{name}{brackets}");
            let reference = self.reference(nested, &path);
            let meaning =
                field["description"].as_str().unwrap_or_default().to_owned() + reference.as_deref().unwrap_or_default();
            let type_and_default = type_of(field) + &default;
            self.text.push_str(&row(&[&format!("`{prefix}{name}`"), &type_and_default, &meaning]));
            if reference.is_none() {
                self.add(nested, &format!("{path}."));
            }
        }
    }

    fn reference(&mut self, object: &Value, path: &str) -> Option<String> {
        let properties = object["properties"].as_object().map(|_| object["properties"].clone())?;
        if let Some(known) = self.described.iter().find(|known| known.properties == properties) {
            let of = if known.kind == self.kind { String::new() } else { format!(" of {}", known.kind) };
            return Some(format!(" Fields: as for `{}`{of}.", known.path));
        }
        self.described.push(DescribedObject { properties, kind: self.kind.to_owned(), path: path.to_owned() });
        None
    }
}

fn type_of(field: &Value) -> String {
    let name = field["type"].as_str().unwrap_or_default();
    match field {
        Value::Object(field) if field.contains_key("enum") => {
            let values = field["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
            values.map(|value| format!("`{value}`")).collect::<Vec<_>>().join(" or ")
        }
        Value::Object(field) if field.contains_key("items") => {
            format!("list of {}s", field["items"]["type"].as_str().unwrap_or_default())
        }
        Value::Object(field) if field.contains_key("additionalProperties") => {
            format!("map of {}s", field["additionalProperties"]["type"].as_str().unwrap_or_default())
        }
        Value::Object(field) if field.contains_key("maximum") => {
            format!("{name}, {} to {}", number(&field["minimum"]), number(&field["maximum"]))
        }
        _ => name.to_owned(),
    }
}

fn number(value: &Value) -> String {
    value.as_f64().map(|number| format!("{number}")).unwrap_or_default()
}

fn row(cells: &[&str]) -> String {
    let cell = |text: &&str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    format!("| {} |\n", cells.iter().map(cell).collect::<Vec<_>>().join(" | "))
}

fn with_table(text: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- table: {name} -->\n"), "<!-- end -->");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{CONFIGURATION} lacks {begin}"));
    let (_, after) = rest.split_once(end).unwrap_or_else(|| panic!("{CONFIGURATION} lacks the end of {name}"));
    format!("{before}{begin}{table}{end}{after}")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the documents for new readers, as paths from the repository's root.
fn documents() -> Vec<PathBuf> {
    let mut documents = markdown_files(".");
    documents.extend(markdown_files("docs"));
    documents.extend(markdown_files("docs/decisions"));
    documents.extend(["e2e/README.md", "bench/README.md", "deploy/README.md"].map(PathBuf::from));
    documents
}

fn markdown_files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    let names = entries.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "md"));
    names.map(|name| Path::new(folder).join(name)).collect()
}

/// Returns the links of a document to files of the repository: the file (empty for the document itself), and the
/// heading.
fn links(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let own = targets.filter(|target| !target.contains("://") && !target.contains(' '));
    own.map(|target| target.split_once('#').unwrap_or((target, "")))
}

/// Returns the anchors of a document's headings, as GitHub generates them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles =
        text.lines().filter_map(|line| line.strip_prefix('#')).map(|title| title.trim_start_matches('#').trim());
    titles.map(|title| {
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    })
}

/// Returns the paths in a document: texts between backquotes that begin with a folder of the repository.
fn named_paths(text: &str) -> impl Iterator<Item = String> {
    let folders: Vec<String> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| format!("{}/", entry.file_name().to_string_lossy()))
        .collect();
    let quoted = text.split('`').skip(1).step_by(2);
    let is_path = |quoted: &&str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        quoted.chars().all(is_plain) && folders.iter().any(|folder| quoted.starts_with(folder.as_str()))
    };
    let outside: Vec<String> =
        quoted.filter(is_path).filter(|path| !path.starts_with("target/")).map(str::to_owned).collect();
    outside.into_iter()
}
