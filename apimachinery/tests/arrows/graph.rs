//! The dependencies between the files of a crate and between its top-level modules, and their cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::source::code;
use crate::uses::{Use, uses};

/// The path of a module below the crate's root; the root has the empty path.
type Module = Vec<String>;

pub(crate) struct Crate {
    files: Graph,
    modules: Graph,
}

/// The dependencies of a crate, by start and end. If several lines have the same start and end, the graph has only the
/// first line.
#[derive(Default)]
struct Graph(BTreeMap<String, BTreeMap<String, Arrow>>);

/// A dependency: a file or a top-level module names a different file or module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrow {
    pub(crate) from: String,
    pub(crate) to: String,
    /// The file that names another file or module.
    pub(crate) file: String,
    /// The line in the file, counted from one.
    pub(crate) line: usize,
    /// The path of the target, in the spelling of the file.
    pub(crate) path: String,
}

struct File {
    path: String,
    uses: Vec<Use>,
}

struct Files(BTreeMap<Module, File>);

impl Crate {
    /// Reads a crate. `texts` has the text of each source file, by its path in `src`. Test files are excluded.
    pub(crate) fn read(texts: &BTreeMap<String, String>) -> Self {
        let is_test = |path: &str| path.ends_with("tests.rs") || path.split('/').any(|folder| folder == "tests");
        let files = texts.iter().filter(|(path, _)| !is_test(path)).map(|(path, text)| {
            let file = File { path: path.clone(), uses: uses(&code(text)) };
            (module(path), file)
        });
        let files = Files(files.collect());
        let mut read = Self { files: Graph::default(), modules: Graph::default() };
        for (from, file) in &files.0 {
            for named in &file.uses {
                let Some(absolute) = files.absolute(from, &named.path) else { continue };
                let arrow = |from: &str, to: &str| Arrow {
                    from: from.to_owned(),
                    to: to.to_owned(),
                    file: file.path.clone(),
                    line: named.line,
                    path: named.path.join("::"),
                };
                if let Some((from, to)) = files.modules(from, &absolute) {
                    read.modules.add(arrow(from, to));
                }
                // A parent module that re-exports its child modules does not depend on the child modules.
                let shows_child = named.exported && absolute.starts_with(from);
                let Some(to) = files.definition(&absolute, 0).filter(|to| to != from && !shows_child) else { continue };
                read.files.add(arrow(&file.path, &files.0[&to].path));
            }
        }
        read
    }

    /// Returns the shortest cycle of each group of files that depend on each other.
    pub(crate) fn file_cycles(&self) -> Vec<Vec<Arrow>> {
        self.files.cycles()
    }

    /// Returns the shortest cycle of each group of top-level modules that depend on each other.
    pub(crate) fn module_cycles(&self) -> Vec<Vec<Arrow>> {
        self.modules.cycles()
    }
}

impl Graph {
    fn add(&mut self, arrow: Arrow) {
        self.0.entry(arrow.from.clone()).or_default().entry(arrow.to.clone()).or_insert(arrow);
    }

    fn cycles(&self) -> Vec<Vec<Arrow>> {
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for from in self.0.keys() {
            let Some(cycle) = self.way_back(from) else { continue };
            // A cycle is found once for each file or module on it, so the loop skips the repetitions.
            let members: BTreeSet<String> = cycle.iter().map(|arrow| arrow.from.clone()).collect();
            if seen.insert(members) {
                found.push(cycle);
            }
        }
        found
    }

    /// Returns the shortest path from a file or module to itself.
    fn way_back(&self, home: &str) -> Option<Vec<Arrow>> {
        let mut incoming: BTreeMap<&str, &Arrow> = BTreeMap::new();
        let mut next = VecDeque::from([home]);
        while let Some(at) = next.pop_front() {
            for (to, arrow) in self.0.get(at).into_iter().flatten() {
                if incoming.contains_key(to.as_str()) {
                    continue;
                }
                incoming.insert(to, arrow);
                next.push_back(to);
            }
        }
        let mut way = vec![(*incoming.get(home)?).clone()];
        while way[0].from != home {
            way.insert(0, incoming[way[0].from.as_str()].clone());
        }
        Some(way)
    }
}

fn module(path: &str) -> Module {
    let mut parts: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

impl Files {
    /// Resolves a path that a module names to a path below the crate's root. Returns `None` for a path into a different
    /// crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let up = path.iter().take_while(|part| *part == "super").count();
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            "super" => Some([&module[..module.len().checked_sub(up)?], &path[up..]].concat()),
            child => {
                let child = [&module[..], &[child.to_owned()]].concat();
                self.0.contains_key(&child).then(|| [module, path].concat())
            }
        }
    }

    /// Returns the top-level modules at the start and the end of a dependency, if they differ.
    ///
    /// A re-export counts as a dependency on the module that re-exports. A re-export of the crate root counts as a
    /// dependency on the module that the root names. The root itself is not a module, because all its dependencies lead
    /// to its children.
    fn modules<'a>(&'a self, from: &'a Module, absolute: &'a [String]) -> Option<(&'a str, &'a str)> {
        let is_module = |name: &String| self.0.contains_key(std::slice::from_ref(name));
        let first = absolute.first()?;
        let exported = || self.0.get(&Vec::new())?.uses.iter().find(|named| named.exported && named.name == *first);
        let to = if is_module(first) {
            first
        } else {
            exported()?
                .path
                .iter()
                .find(|part| !matches!(part.as_str(), "crate" | "self"))
                .filter(|to| is_module(to))?
        };
        let from = from.first()?;
        (from != to).then_some((from, to))
    }

    /// Follows re-exports, and returns the module whose file defines the target of a path.
    fn definition(&self, absolute: &[String], depth: usize) -> Option<Module> {
        let length = (0..=absolute.len()).rev().find(|length| self.0.contains_key(&absolute[..*length]))?;
        let (module, rest) = (absolute[..length].to_vec(), &absolute[length..]);
        let exported = rest
            .first()
            .and_then(|name| self.0[&module].uses.iter().find(|named| named.exported && named.name == *name));
        let further = exported.and_then(|named| self.absolute(&module, &named.path));
        match further {
            Some(further) if depth < 8 && further != absolute => {
                self.definition(&[&further, &rest[1..]].concat(), depth + 1)
            }
            _ => Some(module),
        }
    }
}

#[test]
fn dependency_cycle_of_files_is_found_through_re_exports() {
    let text = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let mut files = BTreeMap::from([
        text("lib.rs", "mod a;\nmod b;\npub use a::A;"),
        text("a.rs", "mod c;\nuse crate::b::B;\nuse self::c::C;"),
        text("a/c.rs", "use std::sync::Arc;\n\n/// Of [`A`](crate::A).\nfn c() {}"),
        text("b.rs", "\nuse crate::A;\nmod tests { use crate::x; }"),
    ]);
    assert_eq!(shown(Crate::read(&files).file_cycles()), ["a.rs:2 crate::b::B b.rs", "b.rs:2 crate::A a.rs"]);
    files.extend([text("b.rs", "fn b() {}")]);
    assert_eq!(Crate::read(&files).file_cycles(), Vec::<Vec<Arrow>>::new());
}

#[test]
fn dependency_cycle_of_modules_is_found_without_a_file_cycle() {
    let text = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let mut files = BTreeMap::from([
        text("lib.rs", "mod a;\nmod b;\npub use a::C;"),
        text("a.rs", "mod c;\npub use c::C;\nuse crate::b::B;"),
        text("a/c.rs", "pub struct C;"),
        text("b.rs", "use crate::a::C;\npub struct B;"),
    ]);
    let cycle = ["a.rs:3 crate::b::B b", "b.rs:1 crate::a::C a"];
    assert_eq!(Crate::read(&files).file_cycles(), Vec::<Vec<Arrow>>::new());
    assert_eq!(shown(Crate::read(&files).module_cycles()), cycle);
    files.extend([text("b.rs", "use crate::C;\npub struct B;")]);
    assert_eq!(shown(Crate::read(&files).module_cycles()), ["a.rs:3 crate::b::B b", "b.rs:1 crate::C a"]);
    files.extend([text("b.rs", "pub struct B;")]);
    assert_eq!(Crate::read(&files).module_cycles(), Vec::<Vec<Arrow>>::new());
}

#[cfg(test)]
fn shown(cycles: Vec<Vec<Arrow>>) -> Vec<String> {
    let arrows = cycles.into_iter().flatten();
    arrows.map(|arrow| format!("{}:{} {} {}", arrow.file, arrow.line, arrow.path, arrow.to)).collect()
}
