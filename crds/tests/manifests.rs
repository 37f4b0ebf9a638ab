//! The committed CustomResourceDefinitions are the generated ones.

use std::path::Path;

#[test]
fn committed_manifests_are_up_to_date() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    let manifests = tributary_crds::render::manifests().unwrap();
    assert_eq!(manifests.len(), 3);
    for manifest in manifests {
        let path = directory.join(&manifest.file_name);
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == manifest.yaml,
            "deploy/crds/{} is out of date; run `cargo run -p tributary-crds --example generate` and commit the result",
            manifest.file_name
        );
    }
}
