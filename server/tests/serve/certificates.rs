//! Tests of unusable or unreadable certificates. The program logs a warning each time that it reads such a certificate.
//! Without the log, only failing clients would show the problem: they get a 401, or cannot verify the server.

use std::path::Path;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use tributary_simulator::kubeconfig;

use crate::fixture::{PATIENCE, Program, get, member, write_upstream_cluster};

/// Returns a self-signed certificate (PEM).
fn certificate(key: &KeyPair, name: &str, host: Option<&str>, is_ca: IsCa, usage: ExtendedKeyUsagePurpose) -> String {
    let hosts: Vec<String> = host.into_iter().map(str::to_owned).collect();
    let mut parameters = CertificateParams::new(hosts).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    (parameters.is_ca, parameters.extended_key_usages) = (is_ca, vec![usage]);
    parameters.self_signed(key).unwrap().pem()
}

/// Replaces a file atomically, because the program watches the file and must not read a part of it.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

async fn wait_for_log_line(program: &Program, parts: &[&str]) {
    let is_told = || {
        let log = program.log.lock().unwrap();
        log.lines().any(|line| parts.iter().all(|part| line.contains(*part)))
    };
    let wait = async {
        while !is_told() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, wait).await;
    assert!(in_time.is_ok(), "no line has {parts:?}: {}", program.log.lock().unwrap());
}

#[tokio::test]
async fn certificate_warnings_are_logged_at_start_and_reload() {
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    const VOUCHES_FOR_NOBODY: &str = "a certificate of the authorities cannot verify any client";
    const CLIENTS_REFUSE: &str = "clients will refuse the serving certificate";
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let path = |name: &str| file(name).to_str().unwrap().to_owned();
    std::fs::create_dir(file("config")).unwrap();
    let member = member("one").await;
    write_upstream_cluster(&file("config"), &member);
    let [authority_key, client_key, serving_key] = [(); 3].map(|()| KeyPair::generate().unwrap());
    let is_authority = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = certificate(&authority_key, "authority", None, is_authority, ClientAuth);
    let beside = |name: &str| format!("{authority}\n{}", certificate(&client_key, name, None, IsCa::NoCa, ClientAuth));
    let serving = |host, usage| certificate(&serving_key, "serving", host, IsCa::NoCa, usage);
    replace(&file("clients.crt"), &beside("ann"));
    replace(&file("serving.crt"), &serving(None, ServerAuth));
    replace(&file("named.crt"), &serving(Some("all.test"), ClientAuth));
    replace(&file("serving.key"), &serving_key.serialize_pem());
    let arguments = [
        "serve".to_owned(),
        "--listen=127.0.0.1:0".to_owned(),
        format!("--config={}", path("config")),
        format!("--client-ca-file={}", path("clients.crt")),
        format!("--tls-cert-file={}", path("serving.crt")),
        format!("--tls-private-key-file={}", path("serving.key")),
        format!("--tls-sni-cert-key={},{}:all.test", path("named.crt"), path("serving.key")),
    ];
    let mut program = Program::start(&arguments.each_ref().map(String::as_str), directory.path());
    program.ready().await;
    wait_for_log_line(
        &program,
        &[VOUCHES_FOR_NOBODY, "--client-ca-file", "clients.crt", "CN=ann", "do not say CA:TRUE"],
    )
    .await;
    wait_for_log_line(&program, &[CLIENTS_REFUSE, "--tls-cert-file", "serving.crt", "has no host name"]).await;
    wait_for_log_line(&program, &[CLIENTS_REFUSE, "--tls-sni-cert-key", "named.crt", "lacks serverAuth"]).await;
    assert!(!program.log.lock().unwrap().contains("CN=authority"), "of what can do all nothing is said");

    replace(&file("clients.crt"), &beside("ben"));
    replace(&file("serving.crt"), &serving(Some("all.test"), ClientAuth));
    program.signal("HUP");
    wait_for_log_line(&program, &[VOUCHES_FOR_NOBODY, "CN=ben", "do not say CA:TRUE"]).await;
    wait_for_log_line(&program, &[CLIENTS_REFUSE, "--tls-cert-file", "lacks serverAuth"]).await;

    replace(&file("clients.crt"), "no certificate");
    program.signal("HUP");
    wait_for_log_line(
        &program,
        &["the new authorities or certificates are invalid; the previous ones stay in use", "--client-ca-file"],
    )
    .await;
    program.signal("TERM");
    assert_eq!(program.end().await.code(), Some(0));
}

#[tokio::test]
async fn damaged_serving_certificate_is_replaced_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let one = member("one").await;
    let (source, written) = (directory.path().join("members.kubeconfig"), directory.path().join("all.kubeconfig"));
    std::fs::write(&source, kubeconfig([&one])).unwrap();
    let (source, path) = (source.to_str().unwrap(), written.to_str().unwrap());
    let arguments = ["serve", "--kubeconfig", source, "--listen", "127.0.0.1:0", "--write-kubeconfig", path];
    let damaged = "the file is damaged; a new certificate is made";
    for is_damaged in [false, true] {
        if is_damaged {
            let file = directory.path().join(".local/share/tributary/serving-certificate.json");
            std::fs::write(file, "{").unwrap();
        }
        let mut program = Program::start(&arguments, directory.path());
        program.ready().await;
        assert_eq!(get(&written, "all", "/readyz").await.unwrap(), "ok");
        if is_damaged {
            wait_for_log_line(&program, &[damaged, "serving-certificate.json"]).await;
        }
        program.signal("TERM");
        assert_eq!(program.end().await.code(), Some(0));
        assert_eq!(program.errors().await.contains(damaged), is_damaged);
    }
}
