//! Tests dispatch policies in front of real clusters, with kubectl as the client. The policies change while the server
//! runs.

use crate::context::{Case, TestContext, cases, eventually};
use anyhow::ensure;
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Arc, time::Duration};
use tributary_e2e::{Kubectl, TestCluster, Tributary, guard, namespace};

/// Longest time until the server has read a changed file.
const SOON: Duration = Duration::from_secs(60);

pub(crate) fn cases() -> Vec<Case> {
    cases!["policies";
        kubectl_shows_policy_denials_and_policies_reload, request_with_an_ambiguous_query_encoding_is_refused_before_policies,
        global_policy_applies_to_each_path_of_a_cluster,
    ]
}

/// Writes a configuration with these policies for the first member, and without policies for the second.
pub(crate) fn write(folder: &Path, members: &[Arc<TestCluster>], governed: &Value) -> anyhow::Result<()> {
    for (number, member) in members.iter().enumerate() {
        let access = member.access();
        let authority = folder.join(format!("{}.ca", member.name()));
        fs::write(&authority, &access.certificate_authority)?;
        let mut spec = json!({
            "endpoints": [access.server], "caFile": authority, "credentials": {"token": access.token},
        });
        if let (0, Some(more)) = (number, governed.as_object()) {
            spec.as_object_mut().unwrap().extend(more.clone());
        }
        let object = json!({
            "apiVersion": "tributary.dev/v1alpha1", "kind": "UpstreamCluster", "metadata": {"name": member.name()},
            "spec": spec,
        });
        // Renames the file, because a rename is atomic. Otherwise the server could read a half-written file and would
        // refuse it.
        let (new, path) = (folder.join("new"), folder.join(format!("{}.yaml", member.name())));
        fs::write(&new, object.to_string())?;
        fs::rename(new, path)?;
    }
    Ok(())
}

fn deny(message: &str, verbs: &[&str], resources: &[&str]) -> Value {
    let rule = json!({"verbs": verbs, "apiGroups": ["*"], "resources": resources});
    json!({"rules": [rule], "deny": {"message": message}})
}

fn pass() -> Value {
    json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "nonResourceURLs": ["*"]}]})
}

async fn kubectl_shows_policy_denials_and_policies_reload(context: TestContext) -> anyhow::Result<()> {
    let tools = context.fixture.tools().await?;
    let members = context.fixture.pair().await?;
    let (first, second) = (members[0].name(), members[1].name());
    let folder = guard::temporary_folder("policies")?;
    let denied = json!({"dispatchPolicies": [
        deny("exec is for people on call", &["create"], &["pods/exec"]),
        deny("config maps stay where they are", &["*"], &["configmaps"]),
        pass(),
    ]});
    write(folder.path(), members, &denied)?;
    let tributary = context.fixture.watch_log(Tributary::configured(folder.path()).start().await?).await;
    let kubectl = Kubectl::new(tools, tributary.kubeconfig())?;
    let name = namespace::unique_name("policies");
    namespace::create(&name, &[&members[0], &members[1]]).await?;
    for member in members {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("of-{}", member.name())}});
        member.http().post(&format!("/api/v1/namespaces/{name}/configmaps"), &map).send().await?.expect(201)?;
    }
    let of = |member: &str| format!("configmap/of-{member}");
    let list = ["get", "configmaps", "-n", &name, "-o", "name"];
    eventually(SOON, async || {
        let listed = kubectl.run(&list).await?;
        let warned = listed.stderr.contains(&format!("Warning: the dispatch policies of {first} refuse this request"));
        ensure!(listed.stdout.contains(&of(second)) && warned, "{} {}", listed.stdout, listed.stderr);
        ensure!(!listed.stdout.contains(&of(first)), "{}", listed.stdout);
        Ok(())
    })
    .await?;
    let own = ["--context", first, "get", "configmaps", "-n", &name, "-o", "name"];
    let said = kubectl.run(&own).await?.failure()?;
    let place = format!("(UpstreamCluster \"{first}\": spec.dispatchPolicies[1].rules[0] denies this request)");
    ensure!(said.contains(&format!("config maps stay where they are {place}")), "{said}");
    // The policy must deny exec over WebSockets and over SPDY.
    for websockets in ["true", "false"] {
        let mut exec = kubectl.command(&["--context", first, "exec", "-n", &name, "pod/none", "--", "true"]);
        exec.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
        // kubectl reads the pod first. No policy denies this read, so the denial of exec must come from the policy for
        // exec.
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "none"},
            "spec": {"containers": [{"name": "one", "image": "none"}], "automountServiceAccountToken": false}});
        let made = members[0].http().post(&format!("/api/v1/namespaces/{name}/pods"), &pod).send().await?;
        ensure!(made.status == 201 || made.status == 409, "{}", made.text());
        let mut of_all = kubectl.command(&["exec", "-n", &name, "pod/none", "--", "true"]);
        of_all.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
        for exec in [exec, of_all] {
            let said = kubectl.run_with(exec, None).await?.failure()?;
            ensure!(said.contains("exec is for people on call"), "websockets {websockets}: {said}");
        }
    }

    // `DenyAll` replaces the policies while the server runs.
    write(folder.path(), members, &json!({"dispatch": "DenyAll"}))?;
    eventually(SOON, async || {
        let listed = kubectl.ok(&list).await?;
        ensure!(listed.contains(&of(first)) && listed.contains(&of(second)), "{listed}");
        Ok(())
    })
    .await?;
    let said = kubectl.run(&["delete", &of(first), "-n", &name]).await?.failure()?;
    ensure!(said.contains("has dispatch: DenyAll"), "{said}");
    let said = kubectl.run(&own).await?.failure()?;
    ensure!(said.contains("has dispatch: DenyAll"), "{said}");
    write(folder.path(), members, &json!({}))?;
    eventually(SOON, async || kubectl.ok(&own).await.map(drop)).await?;
    kubectl.ok(&["delete", &of(first), "-n", &name]).await?;
    Ok(())
}

/// A kube-apiserver accepts query parameters that are not UTF-8. It may treat such a request as a list or a watch,
/// although Tributary's policies evaluated a different request. Tributary must refuse these queries.
async fn request_with_an_ambiguous_query_encoding_is_refused_before_policies(
    context: TestContext,
) -> anyhow::Result<()> {
    let members = context.fixture.pair().await?;
    let first = members[0].name();
    let folder = guard::temporary_folder("policies-query")?;
    let public = json!({"rules": [{
        "verbs": ["list"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["public"],
    }]});
    let denied = json!({"dispatchPolicies": [
        public,
        deny("secrets are not listed", &["list", "watch"], &["secrets"]),
        deny("nobody follows these", &["watch"], &["configmaps"]),
        pass(),
    ]});
    write(folder.path(), members, &denied)?;
    let tributary = context.fixture.watch_log(Tributary::configured(folder.path()).start().await?).await;
    let http = tributary.http().await?;
    let name = namespace::unique_name("policies-query");
    namespace::create(&name, &[&members[0]]).await?;
    let (secrets, maps) =
        (format!("/api/v1/namespaces/{name}/secrets"), format!("/api/v1/namespaces/{name}/configmaps"));
    for (path, object) in [(&secrets, "public"), (&secrets, "private"), (&maps, "one")] {
        let kind = if path == &secrets { "Secret" } else { "ConfigMap" };
        let body = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": object}});
        members[0].http().post(path, &body).send().await?.expect(201)?;
    }
    let own = |path: &str| format!("/clusters/{first}{path}");
    eventually(SOON, async || {
        let said = http.get(&own(&secrets)).send().await?.expect(403)?.text();
        ensure!(said.contains("secrets are not listed"), "{said}");
        http.get(&own(&format!("{secrets}?fieldSelector=metadata.name%3Dpublic"))).send().await?.expect(200)?;
        Ok(())
    })
    .await?;
    let selects_all = format!("{secrets}?fieldSelector=metadata.name!=%ff&fieldSelector=metadata.name=public");
    let follows = format!("{maps}?watch=%ff&timeoutSeconds=1");
    // The kube-apiserver accepts these query parameters, so without the refusal it would answer the request.
    let listed = members[0].http().get(&selects_all).send().await?.expect(200)?.text();
    ensure!(listed.contains("\"private\""), "{listed}");
    let followed = members[0].http().get(&follows).send().await?.expect(200)?.text();
    ensure!(followed.contains("\"ADDED\""), "{followed}");
    for (path, parameter) in [(&selects_all, "fieldSelector"), (&follows, "watch")] {
        for path in [own(path), path.clone()] {
            let said = http.get(&path).send().await?.expect(400)?.json()?;
            let words = format!("the query parameter \"{parameter}\" is not UTF-8");
            ensure!(said["message"].as_str().is_some_and(|said| said.starts_with(&words)), "{path}: {said}");
        }
    }
    Ok(())
}

async fn global_policy_applies_to_each_path_of_a_cluster(context: TestContext) -> anyhow::Result<()> {
    let tools = context.fixture.tools().await?;
    let members = context.fixture.pair().await?;
    let folder = guard::temporary_folder("policies-global")?;
    write(folder.path(), members, &json!({"dispatchPolicies": [pass()]}))?;
    let endpoint = |spec: Value| json!({"apiVersion": "tributary.dev/v1alpha1", "kind": "MergedEndpoint", "metadata": {"name": "all"}, "spec": spec});
    let denied = json!({"globalDispatchPolicies": [deny("nobody deletes here", &["delete"], &["configmaps"])]});
    fs::write(folder.path().join("all.yaml"), endpoint(denied).to_string())?;
    let tributary = context.fixture.watch_log(Tributary::configured(folder.path()).start().await?).await;
    let kubectl = Kubectl::new(tools, tributary.kubeconfig())?;
    let name = namespace::unique_name("policies-global");
    namespace::create(&name, &[&members[0], &members[1]]).await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}});
    members[1].http().post(&format!("/api/v1/namespaces/{name}/configmaps"), &map).send().await?.expect(201)?;
    let place = "(MergedEndpoint \"all\": spec.globalDispatchPolicies[0].rules[0] denies this request)";
    for place_of in ["all", members[0].name(), members[1].name()] {
        let said = kubectl.run(&["--context", place_of, "delete", "configmap/kept", "-n", &name]).await?.failure()?;
        ensure!(said.contains(&format!("nobody deletes here {place}")), "{place_of}: {said}");
    }
    // The test's policy must not affect other requests to the merged view.
    kubectl.ok(&["--context", "all", "get", "configmap/kept", "-n", &name]).await?;
    kubectl.ok(&["--context", members[1].name(), "get", "configmap/kept", "-n", &name]).await?;
    fs::write(folder.path().join("new"), endpoint(json!({})).to_string())?;
    fs::rename(folder.path().join("new"), folder.path().join("all.yaml"))?;
    let delete = ["--context", members[1].name(), "delete", "configmap/kept", "-n", &name];
    eventually(SOON, async || kubectl.ok(&delete).await.map(drop)).await
}
