//! Tests of failures of `tributary join` with simulated members.

use tributary_simulator::kubeconfig;

use crate::fixture::{member, run};

#[tokio::test]
async fn join_refuses_a_cluster_without_rbac() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let (source, config) = (directory.path().join("members.kubeconfig"), directory.path().join("clusters"));
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    std::fs::create_dir(&config).unwrap();
    let (source, config_text) = (source.to_str().unwrap(), config.to_str().unwrap());
    let arguments = ["join", "one", "--kubeconfig", source, "--config", config_text, "--yes"];
    let (code, said, errors) = run(&arguments, directory.path()).await;
    assert_eq!((code, said.as_str()), (Some(1), ""), "{errors}");
    for part in [&*one.url(), "serves no rbac.authorization.k8s.io", "--authorization-mode=Node,RBAC"] {
        assert!(errors.contains(part), "{part} in {errors}");
    }
    assert!(config.read_dir().unwrap().next().is_none(), "nothing is written");
}
