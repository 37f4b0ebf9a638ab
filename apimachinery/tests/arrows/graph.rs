//! Which file of a crate names which, and where that leads in a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::source::code;
use crate::uses::{Use, uses};

/// A module's path from the crate's root, which is empty.
type Module = Vec<String>;

/// The files of a crate, and the arrows between them.
pub(crate) struct Crate {
    /// By the file that names, then by the one that is named; of several lines the first.
    arrows: BTreeMap<String, BTreeMap<String, Arrow>>,
}

/// A file names another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrow {
    pub(crate) from: String,
    pub(crate) to: String,
    /// Where in `from`, counted from one.
    pub(crate) line: usize,
    /// As it is written there.
    pub(crate) path: String,
}

/// One file.
struct File {
    path: String,
    uses: Vec<Use>,
}

struct Files(BTreeMap<Module, File>);

impl Crate {
    /// Reads a crate's files: paths in `src` and texts. Files of tests are left out.
    pub(crate) fn read(texts: &BTreeMap<String, String>) -> Self {
        let is_test = |path: &str| path.ends_with("tests.rs") || path.split('/').any(|folder| folder == "tests");
        let files = texts.iter().filter(|(path, _)| !is_test(path)).map(|(path, text)| {
            let file = File { path: path.clone(), uses: uses(&code(text)) };
            (module(path), file)
        });
        let files = Files(files.collect());
        let mut arrows: BTreeMap<String, BTreeMap<String, Arrow>> = BTreeMap::new();
        for (from, file) in &files.0 {
            for named in &file.uses {
                let Some(absolute) = files.absolute(from, &named.path) else { continue };
                // A parent shows what its children have.
                let shows_child = named.exported && absolute.starts_with(from);
                let Some(to) = files.definition(&absolute, 0).filter(|to| to != from && !shows_child) else { continue };
                let (from, to) = (file.path.clone(), files.0[&to].path.clone());
                let arrow = Arrow { from: from.clone(), to: to.clone(), line: named.line, path: named.path.join("::") };
                arrows.entry(from).or_default().entry(to).or_insert(arrow);
            }
        }
        Self { arrows }
    }

    /// The circles, each the shortest of its files.
    pub(crate) fn circles(&self) -> Vec<Vec<Arrow>> {
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for from in self.arrows.keys() {
            let Some(circle) = self.way_back(from) else { continue };
            // Each circle is found from all of its files.
            let files: BTreeSet<String> = circle.iter().map(|arrow| arrow.from.clone()).collect();
            if seen.insert(files) {
                found.push(circle);
            }
        }
        found
    }

    /// The shortest way from a file to itself.
    fn way_back(&self, home: &str) -> Option<Vec<Arrow>> {
        let mut came_by: BTreeMap<&str, &Arrow> = BTreeMap::new();
        let mut next = VecDeque::from([home]);
        while let Some(at) = next.pop_front() {
            for (to, arrow) in self.arrows.get(at).into_iter().flatten() {
                if came_by.contains_key(to.as_str()) {
                    continue;
                }
                came_by.insert(to, arrow);
                next.push_back(to);
            }
        }
        let mut way = vec![(*came_by.get(home)?).clone()];
        while way[0].from != home {
            way.insert(0, came_by[way[0].from.as_str()].clone());
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
    /// Where a path leads that stands in this module; `None` where it leads to another crate.
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

    /// The module whose file defines what a path leads to, through re-exports.
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
fn a_circle_is_found_through_re_exports() {
    let text = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let mut files = BTreeMap::from([
        text("lib.rs", "mod a;\nmod b;\npub use a::A;"),
        text("a.rs", "mod c;\nuse crate::b::B;\nuse self::c::C;"),
        text("a/c.rs", "use std::sync::Arc;\n\n/// Of [`A`](crate::A).\nfn c() {}"),
        text("b.rs", "\nuse crate::A;\nmod tests { use crate::x; }"),
    ]);
    let read = Crate::read(&files);
    let circles = read.circles();
    let shown: Vec<String> = circles
        .iter()
        .flatten()
        .map(|arrow| format!("{}:{} {} {}", arrow.from, arrow.line, arrow.path, arrow.to))
        .collect();
    assert_eq!(shown, ["a.rs:2 crate::b::B b.rs", "b.rs:2 crate::A a.rs"]);
    files.extend([text("b.rs", "fn b() {}")]);
    assert_eq!(Crate::read(&files).circles(), Vec::<Vec<Arrow>>::new());
}
