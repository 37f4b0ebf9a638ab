//! Tests of the indices of clusters in integer resourceVersions.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tributary_simulator::{SimulatedCluster, kubeconfig};

use crate::fixture::{Program, get, member};

/// Returns the last four digits of the pods' resourceVersions for each cluster. They are the cluster's index.
async fn indices(written: &Path) -> BTreeMap<String, u64> {
    let list = get(written, "all", "/api/v1/pods").await.unwrap();
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    assert!(list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().is_err(), "a list stays composite");
    let index = |pod: &serde_json::Value| {
        let version: u64 = pod["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        (pod["metadata"]["annotations"]["tributary.dev/cluster"].as_str().unwrap().to_owned(), version % 10_000)
    };
    list["items"].as_array().unwrap().iter().map(index).collect()
}

#[tokio::test]
async fn cluster_index_stays_reserved_after_removal_and_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two, three) = (member("one").await, member("two").await, member("three").await);
    let source = directory.path().join("members.kubeconfig");
    let written = directory.path().join("all.kubeconfig");
    let (source_text, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source_text, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let arguments = [&arguments[..], &["--item-resource-versions", "integer"]].concat();
    let expect = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, index)| ((*name).to_owned(), *index)).collect();
    let runs: [(Vec<&SimulatedCluster>, BTreeMap<String, u64>); 3] = [
        (vec![&one, &two], expect(&[("one", 0), ("two", 1)])),
        (vec![&two, &three], expect(&[("two", 1), ("three", 2)])),
        (vec![&three, &one], expect(&[("three", 2), ("one", 0)])),
    ];
    for (members, expected) in runs {
        std::fs::write(&source, kubeconfig(members)).unwrap();
        let mut program = Program::start(&arguments, directory.path());
        program.ready().await;
        assert_eq!(indices(&written).await, expected);
        program.signal("TERM");
        assert!(program.end().await.success());
    }
    let kept = directory.path().join(".local/share/tributary/cluster-indices.json");
    assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    // A configured index must not conflict with the indices in the data directory.
    let config = directory.path().join("clusters.yaml");
    let taken = "apiVersion: tributary.dev/v1alpha1\nkind: UpstreamCluster\nmetadata: { name: new }\nspec: { index: 1, \
                 kubeconfig: { path: members.kubeconfig, context: three } }\n---\napiVersion: tributary.dev/v1alpha1\nkind: \
                 ResourceRegistry\nmetadata: { name: r }\nspec: { resources: ['*'], itemResourceVersions: Integer }\n";
    std::fs::write(&config, taken).unwrap();
    let arguments = ["serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let mut program = Program::start(&arguments, directory.path());
    assert_eq!(program.end().await.code(), Some(2));
    let errors = program.errors().await;
    assert!(errors.contains("UpstreamCluster new: spec.index: 1 was the index of cluster two before"), "{errors}");
}
