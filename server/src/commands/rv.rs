//! `tributary rv decode`: prints the components of a composite resourceVersion.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use serde_json::{Map, Value, json};
use tributary_merge::{CompositeResourceVersion, Epochs, IntegerResourceVersion, VersionDecodeError, split_scope};
use tributary_sources::data_directory::{DataDirectory, EPOCHS, default_data_directory};

use crate::cli::{DecodeArguments, OutputFormat};
use crate::exit::Failure;

/// Prints the components of a resourceVersion.
///
/// # Errors
/// A usage failure for an invalid resourceVersion.
pub fn decode(arguments: &DecodeArguments) -> Result<String, Failure> {
    let token = arguments.token.trim();
    if let Ok(integer) = IntegerResourceVersion::decode(token) {
        return Ok(integer_form(integer, arguments.output));
    }
    // The scope in a resourceVersion is removed, because it belongs to no cluster.
    let (_, unscoped) = split_scope(token).map_err(|error| refused(token, error))?;
    let epochs = if unscoped.contains('.') { epochs(arguments.data_dir.clone())? } else { Epochs::default() };
    let version =
        CompositeResourceVersion::decode_for(unscoped, &epochs, |_| false).map_err(|error| refused(token, error))?;
    Ok(match arguments.output {
        OutputFormat::Table => table(&version),
        OutputFormat::Json => components(&version),
    })
}

fn refused(token: &str, error: VersionDecodeError) -> Failure {
    let token = abbreviate(token);
    Failure::usage(match error {
        VersionDecodeError::Malformed(problem) => anyhow!("{token:?} is not a composite resourceVersion: {problem}"),
        VersionDecodeError::Foreign(cause) => anyhow!("{token:?} cannot be decoded here: {cause}"),
    })
}

fn table(version: &CompositeResourceVersion) -> String {
    const HEADER: &str = "CLUSTER";
    let width = version.iter().map(|(cluster, _)| cluster.as_str().len()).max().unwrap_or(0).max(HEADER.len());
    let mut out = format!("{HEADER:width$}   RESOURCEVERSION\n");
    for (cluster, version) in version.iter() {
        // `write!` to a `String` never fails, so its result is ignored.
        let _ = writeln!(out, "{:width$}   {version}", cluster.as_str());
    }
    out
}

fn components(version: &CompositeResourceVersion) -> String {
    let components: Map<String, Value> =
        version.iter().map(|(cluster, version)| (cluster.to_string(), Value::from(version.to_string()))).collect();
    format!("{:#}\n", Value::from(components))
}

/// Describes an integer version by its cluster index, because the cluster's name is known only from the configuration.
/// Any integer is valid.
fn integer_form(integer: IntegerResourceVersion, output: OutputFormat) -> String {
    let (index, version) = (integer.index().get(), integer.version());
    match output {
        OutputFormat::Table => format!(
            "INDEX   RESOURCEVERSION\n{index:<5}   {version}\n\nTaken for the integer form of an item (itemResourceVersions: \
             Integer), where INDEX is spec.index of an\nUpstreamCluster. A cluster's own resourceVersion is a plain number and \
             has nothing to decode.\n"
        ),
        OutputFormat::Json => format!("{:#}\n", json!({ "index": index, "resourceVersion": version.to_string() })),
    }
}

/// Reads the lists of clusters to which compact resourceVersions refer, from this machine's data directory.
fn epochs(data_dir: Option<PathBuf>) -> Result<Epochs, Failure> {
    let path = match data_dir {
        Some(path) => path,
        None => default_data_directory().map_err(Failure::usage)?,
    };
    let file = path.join(EPOCHS.name());
    if !file.exists() {
        return Ok(Epochs::default());
    }
    let directory = DataDirectory::open(path).map_err(Failure::runtime)?;
    let bytes = directory.read(EPOCHS.name()).map_err(Failure::runtime)?.unwrap_or_default();
    serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is damaged; name another data directory by --data-dir", file.display()))
        .map_err(Failure::runtime)
}

fn abbreviate(token: &str) -> String {
    /// The number of characters of an invalid resourceVersion that an error message shows.
    const SHOWN_MAX: usize = 60;
    match token.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &token[..end]),
        None => token.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{ClusterName, ResourceVersion};

    use super::*;

    fn decode_with(token: &str, output: OutputFormat, data_dir: Option<PathBuf>) -> Result<String, String> {
        let arguments = DecodeArguments { token: token.to_owned(), output, data_dir };
        decode(&arguments).map_err(|failure| failure.to_string())
    }

    #[test]
    fn rv_decode_prints_composite_and_integer_resource_versions() {
        let token = "eyJjbHVzdGVyMSI6IjEyMzQiLCJjbHVzdGVyMiI6IjU2NzgifQ";
        let table = decode_with(token, OutputFormat::Table, None).unwrap();
        assert_eq!(table, "CLUSTER    RESOURCEVERSION\ncluster1   1234\ncluster2   5678\n");
        let scoped = format!("s1.MDEyMzQ1Njc4OWFiY2RlZg.{token}");
        assert_eq!(decode_with(&scoped, OutputFormat::Table, None).unwrap(), table);
        let json = decode_with("eyJjbHVzdGVyMSI6IjEyMzQifQ", OutputFormat::Json, None).unwrap();
        assert_eq!(json, "{\n  \"cluster1\": \"1234\"\n}\n");
        let integer = decode_with("12340007", OutputFormat::Table, None).unwrap();
        assert!(
            integer.starts_with("INDEX   RESOURCEVERSION\n7       1234\n\nTaken for the integer form"),
            "{integer}"
        );
    }

    #[test]
    fn rv_decode_of_the_compact_form_needs_the_data_directory() {
        let clusters: Vec<ClusterName> =
            (0..300).map(|number| ClusterName::new(&format!("cluster-{number:03}")).unwrap()).collect();
        let mut epochs = Epochs::default();
        epochs.update(clusters.iter().map(|name| (name.clone(), format!("uid of {name}"))));
        let mut version = CompositeResourceVersion::new();
        for name in &clusters {
            version.set(name, ResourceVersion(9));
        }
        let token = version.encode(&epochs);
        assert!(token.contains('.'), "the compact form");
        let parent = tempfile::tempdir().unwrap();
        let unknown = decode_with(&token, OutputFormat::Table, Some(parent.path().to_owned())).unwrap_err();
        assert!(unknown.contains("list of clusters"), "{unknown}");
        std::fs::write(parent.path().join(EPOCHS.name()), serde_json::to_vec(&epochs).unwrap()).unwrap();
        let table = decode_with(&token, OutputFormat::Table, Some(parent.path().to_owned())).unwrap();
        assert_eq!(table.lines().count(), 301);
        assert!(table.contains("cluster-299   9"));
    }

    #[test]
    fn rv_decode_of_a_malformed_version_prints_a_short_error() {
        for garbage in ["", "???", "e30x", &"x".repeat(300)] {
            let error = decode_with(garbage, OutputFormat::Table, None).unwrap_err();
            assert_eq!(error.matches("composite resourceVersion").count(), 1, "{error}");
            assert!(error.len() < 300);
        }
    }
}
