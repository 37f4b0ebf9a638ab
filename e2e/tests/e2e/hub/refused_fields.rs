//! Tributary must check the fields of hub objects itself. The test removes the validation rules of the
//! CustomResourceDefinition, because a hub may have an older or changed definition.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{CLUSTERS, Hub, SOON, spec_of};
use crate::context::{Case, TestContext, cases, eventually};
use crate::shared_mode::make_config_map;

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/upstreamclusters.tributary.dev";

pub(super) fn cases() -> Vec<Case> {
    cases!["hub::refused_fields"; object_with_a_refused_field_leaves_its_last_valid_generation_in_force]
}

/// Removes the validation rules and patterns from a schema, and allows unknown fields.
fn remove_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for rule in ["x-kubernetes-validations", "pattern", "maxLength", "enum"] {
                // A property of the object may have the same name as a rule, for example `pattern`. The schema of this
                // property is an object, and must stay.
                if fields.get(rule).is_some_and(|rule| !rule.is_object()) {
                    fields.remove(rule);
                }
            }
            fields.values_mut().for_each(remove_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_rules),
        _ => {}
    }
}

async fn remove_rules_of_the_definition(hub: &Hub) -> anyhow::Result<()> {
    let http = hub.server.http();
    let mut definition = http.get(DEFINITION).send().await?.expect(200)?.json()?;
    let schema = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").context("no schema")?;
    remove_rules(schema);
    schema["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] = json!(true);
    http.put(DEFINITION, &definition).send().await?.expect(200).map(drop)
}

/// Returns the condition `Accepted` for the current generation of the member.
async fn accepted(hub: &Hub, name: &str) -> anyhow::Result<Value> {
    let object = hub.server.http().get(&format!("{CLUSTERS}/{name}")).send().await?.expect(200)?.json()?;
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let condition = conditions.find(|condition| condition["type"] == "Accepted").context("no condition")?;
    ensure!(condition["observedGeneration"] == object["metadata"]["generation"], "{object}");
    Ok(condition.clone())
}

async fn object_with_a_refused_field_leaves_its_last_valid_generation_in_force(
    context: TestContext,
) -> anyhow::Result<()> {
    let _permit = context.fixture.own_members.acquire().await?;
    let hub = Hub::start(&context).await?;
    remove_rules_of_the_definition(&hub).await?;
    let member = &hub.members[0];
    hub.add("eu", member).await?;
    let tributary = context.fixture.watch_log(hub.builder().start().await?).await;
    let http = hub.http(&tributary).await?;
    hub.serves(&http, &["eu"]).await?;
    let server = member.access().server;
    let plain = server.replace("https://", "http://");
    for (change, field) in [
        (json!({"caFile": "/etc/ca.crt"}), "spec.caFile"),
        (json!({"kubeconfig": {"path": "/kubeconfig"}}), "spec.kubeconfig"),
        (json!({"credentials": {"token": "s3cret"}}), "spec.credentials.token"),
        (json!({"credentials": {"tokenFile": "/token"}}), "spec.credentials.tokenFile"),
        (json!({"credentials": {"clientKeyData": "s3cret"}}), "spec.credentials.clientKeyData"),
        (
            json!({"secureServing": {"keyFile": "/key"}, "serverNames": ["eu.example.com"]}),
            "spec.secureServing.keyFile",
        ),
        (
            json!({"secureServing": {"clientCAData": "eA=="}, "serverNames": ["eu.example.com"]}),
            "spec.secureServing.clientCAData",
        ),
        // This field needs the flag --merged-host, which Tributary does not have here.
        (json!({"serverNames": ["eu.example.com"]}), "spec.serverNames"),
        (json!({"endpoints": [plain]}), "spec.endpoints[0]"),
        (json!({"endpoints": ["https://ann:s3cret@eu.example.com"]}), "spec.endpoints[0]"),
        (json!({"endpoints": ["https://[::ffff:169.254.169.254]"]}), "spec.endpoints[0]"),
        (json!({"endpoints": [server, "https://0.0.0.0:6443"]}), "spec.endpoints[1]"),
        (json!({"proxyURL": "http://ann:s3cret@proxy.example.com:3128"}), "spec.proxyURL"),
        (json!({"insecureSkipVerify": true}), "spec.insecureSkipVerify"),
        (json!({"exec": {"command": "sh"}}), "spec.exec"),
        (json!({"user": {"auth-provider": {"name": "gcp"}}}), "spec.user"),
    ] {
        let mut spec = spec_of("eu", member);
        spec.as_object_mut().context("no object")?.extend(change.as_object().cloned().unwrap_or_default());
        replace(&hub, spec).await?;
        eventually(SOON, async || {
            let condition = accepted(&hub, "eu").await?;
            let message = condition["message"].as_str().unwrap_or_default();
            ensure!(condition["status"] == "False" && message.contains(field), "{field}: {condition}");
            ensure!(!message.contains("s3cret"), "{field}: {condition}");
            Ok(())
        })
        .await?;
        hub.serves(&http, &["eu"]).await.with_context(|| format!("after {field}"))?;
    }
    // Watches of the member must still work.
    make_config_map(member, &hub.namespace, "later", 1).await?;
    let later = format!("/api/v1/namespaces/{}/configmaps/later", hub.namespace);
    eventually(SOON, async || http.get(&later).send().await?.expect(200).map(drop)).await?;
    replace(&hub, spec_of("eu", member)).await?;
    eventually(SOON, async || {
        let condition = accepted(&hub, "eu").await?;
        ensure!(condition["status"] == "True", "{condition}");
        Ok(())
    })
    .await?;
    ensure!(!tributary.log().contains("s3cret"), "the log has a secret");
    Ok(())
}

/// Replaces the whole spec of the member's object.
async fn replace(hub: &Hub, spec: Value) -> anyhow::Result<()> {
    let path = format!("{CLUSTERS}/eu");
    eventually(SOON, async || {
        let mut object = hub.server.http().get(&path).send().await?.expect(200)?.json()?;
        object["spec"] = spec.clone();
        // If Tributary writes the status between this get and the put, the put gets a conflict, and the loop repeats
        // both.
        hub.server.http().put(&path, &object).send().await?.expect(200).map(drop)
    })
    .await
}
