//! Signs users in at an issuer that uses a certified OpenID Connect library. The real kubectl starts a plugin, which
//! gets a code with PKCE and exchanges the code for a token. The endpoint and a real kube-apiserver must accept the
//! same tokens.

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tributary_e2e::{
    HttpClient, Kubectl, TestCluster, Tools, certificates::TestCertificates, kubeconfig, process::Process,
};

use super::SOON;
use crate::context::eventually;

const PASSWORD: &str = "a test's password";
const UNAUTHORIZED: u16 = 401;

pub(super) struct SignInIssuer {
    program: PathBuf,
    url: String,
    certificates: TestCertificates,
    authority: PathBuf,
    _process: Process,
}

impl SignInIssuer {
    pub(super) async fn start(tools: &Tools, folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join("issuer");
        fs::create_dir(&folder)?;
        let certificates = TestCertificates::generate("sign-in")?;
        certificates.write(&folder)?;
        let people = folder.join("people.json");
        let person = |id: &str, name: &str, groups: &[&str]| {
            json!({
                "ID": id, "Username": name, "Password": PASSWORD, "Email": format!("{name}@example.com"),
                "EmailVerified": true, "Groups": groups,
            })
        };
        fs::write(&people, json!([person("1", "ann", &["dev", "ops"]), person("2", "ben", &[])]).to_string())?;
        let program = tools.issuer().await?.join("issuer");
        let mut command = Command::new(&program);
        command.arg("serve").arg("--people").arg(&people);
        command.arg("--certificate").arg(folder.join("serving.crt")).arg("--key").arg(folder.join("serving.key"));
        let (output, log) = (folder.join("url"), folder.join("issuer.log"));
        let mut process = Process::spawn_with("issuer", command, &output, &log, Stdio::null())?;
        let url = process.wait_for_output(SOON, |text| text.ends_with('\n')).await?.trim().to_owned();
        Ok(Self { program, url, authority: folder.join("ca.crt"), certificates, _process: process })
    }

    /// The issuer's entry in an AuthenticationConfiguration.
    pub(super) fn configuration(&self) -> Value {
        json!({
            "issuer": {
                "url": self.url, "audiences": ["kubectl"], "certificateAuthority": self.certificates.authority,
            },
            "claimMappings": {
                "username": {"claim": "email", "prefix": "sso:"}, "groups": {"claim": "groups", "prefix": "sso:"},
                "uid": {"claim": "sub"},
            },
        })
    }

    /// A kubeconfig `user` entry with a plugin that signs in.
    fn user(&self, name: &str) -> Value {
        json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": self.program,
            "args": [
                "sign-in", "--issuer", self.url, "--authority", self.authority, "--name", name, "--password", PASSWORD,
            ],
        }})
    }

    async fn token(&self, name: &str) -> anyhow::Result<String> {
        let user = self.user(name);
        let arguments = user["exec"]["args"].as_array().context("arguments")?.iter().filter_map(Value::as_str);
        let output = tokio::process::Command::new(&self.program).args(arguments).output().await?;
        let credential: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
        Ok(credential["status"]["token"].as_str().context("no token")?.to_owned())
    }

    /// Makes the issuer sign with a new key, and no longer publish the old key.
    async fn rotate(&self, folder: &Path) -> anyhow::Result<()> {
        let path = folder.join("issuer.kubeconfig");
        let cluster = json!({"server": self.url, "certificate-authority": self.authority});
        kubeconfig::write_entries(
            &path,
            &[kubeconfig::ContextParts { name: "issuer".to_owned(), cluster, user: json!({}) }],
        )?;
        HttpClient::from_kubeconfig(&path, None).await?.post("/rotate", &json!({})).send().await?.expect(200).map(drop)
    }
}

pub(super) struct SignInServers<'a> {
    pub(super) member: &'a TestCluster,
    pub(super) endpoint: &'a Path,
    pub(super) folder: &'a Path,
}

impl SignInServers<'_> {
    /// Writes kubeconfigs of the member and of the endpoint with this `user` entry.
    fn kubeconfigs(&self, user: &Value) -> anyhow::Result<[PathBuf; 2]> {
        let paths = ["there", "here"].map(|name| self.folder.join(format!("{name}.signed-in")));
        let member = kubeconfig::ContextParts { user: user.clone(), ..self.member.access().entries() };
        kubeconfig::write_entries(&paths[0], &[member])?;
        let mut own: Value = serde_json::from_slice(&fs::read(self.endpoint)?)?;
        own["users"][0]["user"] = user.clone();
        fs::write(&paths[1], own.to_string())?;
        Ok(paths)
    }

    /// Sends a token to the member and to the endpoint, each on a new connection, and returns the status codes.
    async fn statuses(&self, token: &str) -> anyhow::Result<[u16; 2]> {
        let paths = self.kubeconfigs(&json!({"token": token}))?;
        let mut statuses = [0; 2];
        for (path, status) in paths.iter().zip(&mut statuses) {
            let http = HttpClient::from_kubeconfig(path, None).await?;
            *status = http.get("/version").send().await?.status.as_u16();
        }
        Ok(statuses)
    }
}

pub(super) async fn people_sign_in(
    tools: &Tools,
    issuer: &SignInIssuer,
    places: &SignInServers<'_>,
) -> anyhow::Result<()> {
    for (name, groups) in
        [("ann", vec!["sso:dev", "sso:ops", "system:authenticated"]), ("ben", vec!["system:authenticated"])]
    {
        let mut known = Vec::new();
        for path in places.kubeconfigs(&issuer.user(name))? {
            let kubectl = Kubectl::new(tools, &path)?;
            // A kube-apiserver reads the keys of token issuers at its start. If an issuer does not answer, the
            // kube-apiserver tries again every 10 s.
            eventually(SOON, async || kubectl.ok(&["auth", "whoami"]).await.map(drop)).await?;
            let who = kubectl.ok(&["auth", "whoami", "-o", "json"]).await?;
            known.push(serde_json::from_str::<Value>(&who)?["status"]["userInfo"].take());
        }
        ensure!(known[0] == known[1], "{} there, {} here", known[0], known[1]);
        let expected = (json!(format!("sso:{name}@example.com")), json!(groups));
        ensure!((known[1]["username"].clone(), known[1]["groups"].clone()) == expected, "{}", known[1]);
    }
    let refused = Kubectl::new(tools, &places.kubeconfigs(&issuer.user("eve"))?[1])?.run(&["get", "pods"]).await?;
    ensure!(refused.code != Some(0) && refused.stderr.contains("not sign in"), "{}", refused.stderr);

    // The issuer changes its key without notice. A new token must be accepted at once, because its header names the new
    // key.
    let before = issuer.token("ann").await?;
    ensure!(places.statuses(&before).await? == [200, 200]);
    issuer.rotate(places.folder).await?;
    let after = issuer.token("ann").await?;
    eventually(SOON, async || {
        let statuses = places.statuses(&after).await?;
        ensure!(statuses == [200, 200], "by the new key: {statuses:?}");
        Ok(())
    })
    .await?;
    // A token that was signed with the removed key must be refused as soon as the server's cached authentication result
    // of the token expires.
    eventually(SOON, async || {
        let statuses = places.statuses(&before).await?;
        ensure!(statuses == [UNAUTHORIZED, UNAUTHORIZED], "by the old key: {statuses:?}");
        Ok(())
    })
    .await
}
