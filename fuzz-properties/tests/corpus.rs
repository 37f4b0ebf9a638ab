//! Runs each fuzz target over its corpus and over random changes of the corpus. The corpus includes the inputs that
//! revealed earlier errors, and each run also tries new inputs.

use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tributary_fuzz_properties::TARGETS;

/// The number of random changes for each target. All targets together take some seconds in a debug build.
const CHANGES: usize = 1_500;

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).expect("a file"))).collect()
}

fn check_property(target: &str, property: fn(&[u8]), input: &[u8], what: &dyn std::fmt::Display) {
    if std::panic::catch_unwind(|| property(input)).is_err() {
        panic!("{target} fails for {what}: {}", input.escape_ascii());
    }
}

#[test]
fn every_fuzz_property_holds_for_each_file_of_the_corpus() {
    for (target, property) in TARGETS {
        let corpus = corpus(target);
        assert!(corpus.len() >= 5, "{target} has at least five inputs");
        for (path, input) in corpus {
            check_property(target, property, &input, &path.display());
        }
    }
}

#[test]
fn every_fuzz_property_holds_for_randomly_changed_corpus_files() {
    let changes = std::env::var("TRIBUTARY_CHANGES").ok().map_or(CHANGES, |text| text.parse().expect("a number"));
    let mut random = StdRng::seed_from_u64(changes as u64);
    for (target, property) in TARGETS {
        let corpus: Vec<_> = corpus(target).into_iter().map(|(_, input)| input).collect();
        for _ in 0..changes {
            let input = changed(&corpus, &mut random);
            check_property(target, property, &input, &"a change of its corpus");
        }
    }
}

/// Returns an input of the corpus with bytes inserted, removed, changed, repeated, or copied from another input.
fn changed(corpus: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut input = corpus.choose(random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=input.len());
        let end = random.random_range(at..=input.len().min(at + 16));
        match random.random_range(0..6) {
            0 => drop(input.drain(at..end)),
            1 => input.insert(at, random.random()),
            2 => {
                let part = input[at..end].to_vec();
                input.splice(at..at, part);
            }
            3 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << random.random_range(0..8);
                }
            }
            4 => {
                let other = corpus.choose(random).cloned().unwrap_or_default();
                let from = random.random_range(0..=other.len());
                input.splice(at..end, other[from..].iter().copied().take(24));
            }
            _ => {
                let interesting: &[u8] = b"\\\"{}[]:,/.%?&=;+-0123 \n\t\0\xff\x80nulltrue";
                input.insert(at, interesting.choose(random).copied().unwrap_or_default());
            }
        }
    }
    input
}
