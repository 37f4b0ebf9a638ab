//! Tests of `tributary kubeconfig user`, which writes a kubeconfig for a user of the shared mode.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

use crate::fixture::{Program, config, contexts, get, member, run, write_upstream_cluster};

fn write_authority(directory: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(DnType::CommonName, name);
    std::fs::write(directory.join(format!("{name}.crt")), parameters.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn user_authenticates_with_the_generated_kubeconfig() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let one = member("one").await;
    std::fs::create_dir(file("clusters")).unwrap();
    write_upstream_cluster(&directory.path().join("clusters"), &one);
    write_authority(directory.path(), "people");
    write_authority(directory.path(), "strangers");
    let (clusters, ca) = (file("clusters"), file("people.crt"));
    let arguments = ["serve", "--config", &clusters, "--client-ca-file", &ca, "--listen", "127.0.0.1:0"];
    let mut program = Program::start(&arguments, directory.path());
    let ready = program.ready().await;
    let url = ready.split_whitespace().nth(1).unwrap().to_owned();
    let server_ca = file(".local/share/tributary/ca.crt");
    let make = async |authority: &str, name: &str, output: &str| {
        let (ca, key, output) = (file(&format!("{authority}.crt")), file(&format!("{authority}.key")), file(output));
        let made = ["kubeconfig", "user", name, "--group", "dev", "--group", "ops", "--client-ca", &ca];
        let by = ["--client-ca-key", &key, "--server", &url, "--certificate-authority", &server_ca];
        let further = ["--clusters", "one", "--output", &output];
        run(&[&made[..], &by, &further].concat(), directory.path()).await
    };

    // The second run replaces the file of the first run, which belongs to the same user.
    for _ in 0..2 {
        let (code, said, errors) = make("people", "ann", "ann.kubeconfig").await;
        assert_eq!(code, Some(0), "{errors}");
        for part in ["user \"ann\", groups dev, ops", "valid for 30 days, until 20", "auth whoami"] {
            assert!(said.contains(part), "{part} in {said}");
        }
    }
    let path = directory.path().join("ann.kubeconfig");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(contexts(&path), ["all", "one"]);
    assert!(get(&path, "all", "/version").await.unwrap().contains("gitVersion"));
    let refused = get(&path, "all", "/tributary/status").await.unwrap_err().to_string();
    assert!(refused.contains("User \"ann\" cannot get path"), "{refused}");
    assert_eq!(config(&path, "one").await.cluster_url.path(), "/clusters/one");

    // The program does not trust this authority, so it refuses the user's certificate.
    assert_eq!(make("strangers", "ann", "stranger.kubeconfig").await.0, Some(0));
    let stranger = get(&directory.path().join("stranger.kubeconfig"), "all", "/version").await.unwrap_err();
    assert!(stranger.to_string().contains("Unauthorized"), "{stranger}");

    // The command does not replace the file of another user.
    let before = std::fs::read(&path).unwrap();
    let (code, said, errors) = make("people", "bob", "ann.kubeconfig").await;
    assert_eq!((code, &*said), (Some(2), ""));
    assert!(errors.contains("not written by tributary for user \"bob\"") && errors.contains("--output"), "{errors}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}

#[tokio::test]
async fn kubeconfig_user_error_names_the_flag_and_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    write_authority(directory.path(), "people");
    write_authority(directory.path(), "strangers");
    std::fs::write(directory.path().join("text"), "no PEM").unwrap();
    std::fs::write(directory.path().join("mine"), "mine").unwrap();
    for (line, expected) in [
        ("ann --client-ca people.crt", &["--client-ca-key"][..]),
        ("ann --client-ca none.crt --client-ca-key people.key", &["--client-ca", "none.crt cannot be read"]),
        ("ann --client-ca text --client-ca-key people.key", &["--client-ca", "text", "has no certificate"]),
        ("ann --client-ca people.crt --client-ca-key text", &["--client-ca-key", "no private key", "openssl pkey"]),
        ("ann --client-ca people.crt --client-ca-key strangers.key", &["--client-ca-key", "give the key that belongs"]),
        (
            "ann --client-ca people.crt --client-ca-key people.key --group system:masters",
            &["--group \"system:masters\""],
        ),
        ("system:admin --client-ca people.crt --client-ca-key people.key", &["NAME \"system:admin\""]),
        ("a/b --client-ca people.crt --client-ca-key people.key", &["--output"]),
        ("ann --client-ca people.crt --client-ca-key people.key --expires 0", &["--expires", "above 0"]),
        ("ann --client-ca people.crt --client-ca-key people.key --server http://a", &["--server", "https://HOST"]),
        ("ann --client-ca people.crt --client-ca-key people.key --output mine", &["mine exists", "--output"]),
        (
            "ann --client-ca people.crt --client-ca-key people.key --certificate-authority text",
            &["--certificate-authority", "no certificate"],
        ),
    ] {
        let words = line.split(' ').map(|word| match directory.path().join(word) {
            path if path.exists() || word == "none.crt" => path.to_str().unwrap().to_owned(),
            _ => word.to_owned(),
        });
        let words: Vec<String> = ["kubeconfig", "user"].map(str::to_owned).into_iter().chain(words).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (code, said, errors) = run(&words, directory.path()).await;
        assert_eq!((code, &*said), (Some(2), ""), "{line}: {errors}");
        for part in expected {
            assert!(errors.contains(part), "{line}: {part} in {errors}");
        }
    }
    assert_eq!(std::fs::read_to_string(directory.path().join("mine")).unwrap(), "mine");
    assert_eq!(directory.path().read_dir().unwrap().count(), 6, "nothing is written");
}
