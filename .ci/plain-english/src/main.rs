//! Checks that comments and documents are written in plain English. CONTRIBUTING has the rules.
//!
//! `plain-english [FOLDER]` reads the Rust and Markdown files below a folder (by default the current folder). The
//! program lists the passages that break a rule, and fails if a crate or a page has too many. It checks only the form
//! of a text: a comment that passes can still be wrong or unclear.

mod allowed;
mod comments;
mod documents;
mod files;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::allowed::Allowed;

/// Maximum percentage of a crate's comments that may break a rule. 5, because well-kept Rust projects (linkerd2-proxy,
/// tower, hyper, kube-rs, ztunnel) have 2 to 7.
const COMMENTS_MAX: f64 = 5.0;

/// Maximum number of vague words in a page, per 1,000 words. 5, because linkerd2-proxy, tower, hyper, kube-rs and
/// ztunnel have 1 to 7.
const VAGUE_WORDS_MAX: f64 = 5.0;

#[derive(Default)]
struct CrateComments {
    count: usize,
    /// Place of each comment that breaks a rule, and the reason.
    findings: Vec<String>,
}

fn main() -> ExitCode {
    let root = env::args().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let allowed = Allowed::parse(&fs::read_to_string(root.join(".ci/plain-english/allowed.txt")).unwrap_or_default());
    let mut complaints = check_comments(&root, &allowed);
    complaints.extend(check_documents(&root, &allowed));
    for complaint in &complaints {
        println!("{complaint}");
    }
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check_comments(root: &Path, allowed: &Allowed) -> Vec<String> {
    let mut crates: BTreeMap<String, CrateComments> = BTreeMap::new();
    for path in files::with_extension(root, "rs") {
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        let own = crates.entry(files::crate_of(root, &path)).or_default();
        for comment in comments::parse(&text) {
            own.count += 1;
            if let Some(broken) = rules::judge(&comment) {
                own.findings.push(format!("  {}:{}: {broken}: {}", path.display(), comment.line, comment.beginning()));
            }
        }
    }
    let mut complaints = Vec::new();
    for (name, CrateComments { count, findings }) in crates {
        let percent = 100.0 * findings.len() as f64 / count.max(1) as f64;
        let max = allowed.limit_of(&name).unwrap_or(COMMENTS_MAX);
        if percent > max {
            complaints.push(format!("{name}: {percent:.1} % of {count} comments break a rule, {max} % may"));
            complaints.extend(findings);
        }
    }
    complaints
}

fn check_documents(root: &Path, allowed: &Allowed) -> Vec<String> {
    let mut complaints = Vec::new();
    for path in files::with_extension(root, "md") {
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        let words = documents::words(&text);
        let vague: Vec<_> = words.iter().filter(|word| documents::is_vague(word)).map(String::as_str).collect();
        let (name, share) = (path.display().to_string(), 1000.0 * vague.len() as f64 / words.len().max(1) as f64);
        let max = allowed.limit_of(&name).unwrap_or(VAGUE_WORDS_MAX);
        // A page may have one vague word, even if the page is so short that this word exceeds the limit per 1,000
        // words.
        if vague.len() > 1 && share > max {
            let words: BTreeSet<_> = vague.into_iter().collect();
            complaints.push(format!("{name}: {share:.1} vague words in 1,000, {max} may be: {words:?}"));
        }
    }
    complaints
}
